"""What the user sees: answers on stdout; notes, progress and errors on stderr."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from bsprof.errors import BsprofError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

log = logging.getLogger(__name__)

COLORS = ("auto", "always", "never")

_OFF = ("", "0", "false", "f", "no", "n", "off")  # what the flag's own environment variable takes

_LABEL_WIDTH = 10  # "  found:  " and "  next:   "


class Terminal:
    """The two streams of one run, with the user's wishes about them.

    Attributes:
        quiet: Only the answer and errors are shown.
        verbosity: 0, or how often `-v` was given.
        debug: Errors come with their traceback.
        color: `auto`, `always` or `never`.
        config: The configuration file that was read, if any.
        arguments: The words of the command line, for telling how to go on.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.environ = os.environ if environ is None else environ
        self.quiet = False
        self.verbosity = 0
        self.debug = self.environ.get("BSPROF_DEBUG", "").strip().lower() not in _OFF
        self.color = "auto"
        self.config: Path | None = None
        self.arguments: tuple[str, ...] = ()

    def choose(self, *, quiet: bool, verbosity: int, debug: bool, color: str) -> None:
        """Take over the options that every command has.

        Raises:
            UsageError: an unknown colour mode.
        """
        self.debug = self.debug or debug
        self.quiet, self.verbosity = quiet, verbosity
        if color not in COLORS:
            raise UsageError(
                f"unknown colour mode {color!r}", next_step=f"use one of {', '.join(COLORS)}"
            )
        self.color = color
        if verbosity:
            _log_to_stderr(verbosity)
            log.info("configuration: %s", self.config or "none in this folder")

    def answer(self, text: str) -> None:
        """Write text, and a newline unless it has one, to stdout."""
        sys.stdout.write(text if text.endswith("\n") else text + "\n")

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        numeric: Collection[int] = (),
        styles: Sequence[str] = (),
    ) -> None:
        """A table on stdout: drawn on a terminal, tab-separated lines into a pipe.

        Args:
            columns: Titles.
            rows: Cells, as many in each row as there are columns.
            numeric: Indices of the columns that are aligned to the right.
            styles: A rich style for each row; empty for none.
        """
        if not is_terminal(sys.stdout):
            for cells in (columns, *rows):
                self.fields(*cells)
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for index, name in enumerate(columns):
            table.add_column(name, justify="right" if index in numeric else "left")
        for index, row in enumerate(rows):
            table.add_row(*map(Text, row), style=styles[index] if styles else None)
        self.console(sys.stdout).print(table)

    def fields(self, *cells: str) -> None:
        """One tab-separated line on stdout."""
        self.answer("\t".join(_one_field(cell) for cell in cells))

    def note(self, text: str, *, label: str = "note") -> None:
        """A remark on stderr; nothing when quiet."""
        if not self.quiet:
            self._labelled(label, text, "33" if label == "warning" else "36")

    def status(self, text: str) -> None:
        """A plain line on stderr; nothing when quiet."""
        if not self.quiet:
            sys.stderr.write(text + "\n")

    def urgent(self, text: str) -> None:
        """A plain line on stderr, even when quiet."""
        sys.stderr.write(text + "\n")

    def error(self, error: BsprofError) -> None:
        """An expected failure on stderr, in up to three parts."""
        self._labelled("error", error.doing, "31;1")
        for label, text in (("found", error.found), ("next", error.next_step)):
            if text:
                sys.stderr.write(_part(label, text) + "\n")

    def colored(self, stream: TextIO) -> bool:
        """Whether that stream gets colours: flag, then NO_COLOR, FORCE_COLOR, TERM, terminal."""
        if self.color != "auto":
            return self.color == "always"
        if self.environ.get("NO_COLOR"):
            return False
        if self.environ.get("FORCE_COLOR"):
            return True
        return self.environ.get("TERM") != "dumb" and is_terminal(stream)

    def console(self, stream: TextIO) -> Console:
        """A rich console on that stream, with colours as `colored` says."""
        from rich.console import Console

        colored = self.colored(stream)
        return Console(
            file=stream,
            force_terminal=True if colored else None,
            color_system="standard" if colored else None,
            highlight=False,
            markup=False,
        )

    def _labelled(self, label: str, text: str, style: str) -> None:
        head = f"\x1b[{style}m{label}:\x1b[0m" if self.colored(sys.stderr) else f"{label}:"
        sys.stderr.write(f"{head} {text}\n")


def is_terminal(stream: TextIO) -> bool:
    """Whether somebody watches that stream; False once it is closed."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def _one_field(text: str) -> str:
    return text.replace("\t", " ").replace("\n", " ")


def _part(label: str, text: str) -> str:
    """`  found:  text`, further lines under the first."""
    first, *others = text.splitlines() or [""]
    lines = [f"  {label}:".ljust(_LABEL_WIDTH) + first]
    return "\n".join(lines + [" " * _LABEL_WIDTH + line for line in others])


def _log_to_stderr(verbosity: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("bsprof")
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbosity > 1 else logging.INFO)
