"""Options that several commands share; cheap to import, as `--help` needs them."""

from __future__ import annotations

from typing import Annotated

import typer

from bsprof.cli.terminal import Terminal

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show only the answer and errors.")]
Verbose = Annotated[
    int,
    typer.Option(
        "-v", "--verbose", count=True, show_default=False, help="Say more; -vv for debugging."
    ),
]
Debug = Annotated[
    bool, typer.Option("--debug", envvar="BSPROF_DEBUG", help="Show the traceback of an error.")
]
Color = Annotated[
    str, typer.Option("--color", metavar="auto|always|never", help="When to use colour.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output file.")]


def terminal_of(
    ctx: typer.Context, *, quiet: bool, verbose: int, debug: bool, color: str
) -> Terminal:
    """The terminal of this run, with the options that every command has."""
    terminal: Terminal = ctx.ensure_object(Terminal)
    terminal.choose(quiet=quiet, verbosity=verbose, debug=debug, color=color)
    return terminal
