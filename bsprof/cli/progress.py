"""Progress of a sweep on stderr: a live line on a terminal, else one plain line per point."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bsprof.cli.terminal import Terminal, is_terminal

if TYPE_CHECKING:
    from bsprof.measure.events import Listener, SweepEvent

_LASTING = frozenset({"start", "point", "confirm", "loader", "note"})
"""Kinds of events that stay on the screen; the others are shown while they last, or with -v."""


@contextmanager
def progress(terminal: Terminal) -> Iterator[Listener]:
    """A listener for `run_sweep` that shows what happens; nothing when quiet."""
    if terminal.quiet:
        yield lambda event: None  # noqa: ARG005 - the signature of a listener
    elif is_terminal(sys.stderr) and terminal.environ.get("TERM") != "dumb":
        with _live(terminal) as listener:
            yield listener
    else:
        yield lambda event: _plain(terminal, event)


def _plain(terminal: Terminal, event: SweepEvent) -> None:
    if event.kind == "note":
        terminal.note(event.text)
    elif event.kind in _LASTING or terminal.verbosity:
        terminal.status(event.text)


@contextmanager
def _live(terminal: Terminal) -> Iterator[Listener]:
    from rich.text import Text

    console = terminal.console(sys.stderr)
    with console.status("starting") as status:

        def listen(event: SweepEvent) -> None:
            if event.kind == "note":
                console.print(Text("note: ", style="cyan").append(event.text, style="default"))
            elif event.kind in _LASTING or terminal.verbosity:
                console.print(Text(event.text))
            status.update(Text(event.text))

        yield listen
