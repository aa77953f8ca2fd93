"""Options that several commands share; cheap to import, as `--help` needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from bsprof.cli.terminal import Terminal
from bsprof.errors import UsageError

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


DOCUMENT_SCHEMA = 1
"""Version of the small documents of `--json`, those of profiles and plans aside."""


def on_command_line(ctx: typer.Context, *names: str) -> bool:
    """Whether one of these parameters was given as a flag, not by configuration or default."""
    sources = (ctx.get_parameter_source(name) for name in names)
    return any(source is not None and source.name == "COMMANDLINE" for source in sources)


def refuse_without_target(ctx: typer.Context, names: Sequence[str]) -> None:
    """Refuse flags that are about a target, where none was given.

    Raises:
        UsageError: one of these parameters was given as a flag.
    """
    useless = [name for name in names if on_command_line(ctx, name)]
    if useless:
        options = " and ".join("--" + name.replace("_", "-") for name in useless)
        raise UsageError(
            f"{options} {'has' if len(useless) == 1 else 'have'} no effect without a target",
            next_step="add --target-batch or --target-tokens",
        )


def json_wanted(ctx: typer.Context, *, as_json: bool, to_stdout: bool) -> bool:
    """Whether to print JSON, of a command that may write its report to stdout instead.

    Raises:
        UsageError: both want stdout, and no flag wins over configuration.
    """
    if not (as_json and to_stdout):
        return as_json
    if "as_json" in beaten(ctx, ("as_json",), ("output",)):
        return False
    raise UsageError(
        "--json and -o - both want stdout", next_step="write the report to a file, or drop one"
    )


def beaten(ctx: typer.Context, *sides: Sequence[str]) -> frozenset[str]:
    """Parameters that give way, of sides that exclude each other: flags win over configuration.

    A side gives way when none of its parameters was given as a flag and one of another side was.
    """
    flagged = [on_command_line(ctx, *names) for names in sides]
    losers = [names for names, wins in zip(sides, flagged, strict=True) if not wins]
    return frozenset(name for names in losers for name in names if any(flagged))


def terminal_of(
    ctx: typer.Context, *, quiet: bool, verbose: int, debug: bool, color: str
) -> Terminal:
    """The terminal of this run, with the options that every command has."""
    terminal: Terminal = ctx.ensure_object(Terminal)
    terminal.choose(quiet=quiet, verbosity=verbose, debug=debug, color=color)
    return terminal
