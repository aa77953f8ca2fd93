"""The program `bsprof`: its commands, their common set-up, and one way out for every error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from bsprof.cli import config
from bsprof.cli.exits import Exit, exit_status
from bsprof.cli.light import lighten
from bsprof.cli.terminal import Terminal
from bsprof.errors import BsprofError, UsageError

# The class of every complaint that typer itself has about a command line. typer carries its own
# copy of click (or, in old versions, imports it), so the class is reached through a public one.
_CommandLineProblem: type[Any] = typer.BadParameter.__mro__[2]

COMMANDS = (
    "sweep",
    "recommend",
    "report",
    "compare",
    "check",
    "noise",
    "calibrate",
    "validate",
    "profiles",
    "models",
    "devices",
    "doctor",
)
"""One module each, with a function `command` and an `EXAMPLE`."""


def build_app(commands: Sequence[str] = COMMANDS) -> typer.Typer:
    """The program with these commands; one that is not run costs a reader its signature."""
    app = typer.Typer(
        name="bsprof",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # drawn boxes cut long option names short, and load slowly
        help="Which micro-batch, and how many accumulation steps, on this device, and why.",
        epilog="Start with: bsprof sweep --model gpt-tiny",
    )
    app.callback()(_start)
    for name in commands:
        module = import_module(f"bsprof.cli.{name}")
        app.command(name, epilog=f"Example: {module.EXAMPLE}")(module.command)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from bsprof import __version__

        sys.stdout.write(f"bsprof {__version__}\n")
        raise typer.Exit


def _start(
    ctx: typer.Context,
    version: Annotated[  # noqa: ARG001 - typer hands it to the callback above
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and end."
        ),
    ] = False,
) -> None:
    terminal = ctx.ensure_object(Terminal)
    if "--help" not in terminal.arguments:  # help must work beside a broken configuration
        terminal.config, ctx.default_map = config.defaults(Path(), _options(ctx))


def _options(ctx: typer.Context) -> dict[str, dict[str, config.Option]]:
    """By command: from the long name of each option, without dashes, to the option."""
    commands: dict[str, Any] = ctx.command.commands  # type: ignore[attr-defined]
    return {
        command: {
            option.removeprefix("--"): config.Option(parameter.name, parameter.multiple)
            for parameter in found.params
            for option in parameter.opts
            if option.startswith("--") and option != "--help"
        }
        for command, found in commands.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status.

    Args:
        arguments: Words after the program's name; None takes the process's own.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    terminal = Terminal()
    terminal.arguments = tuple(words)
    try:
        program = typer.main.get_command(build_app(_needed(words)))
        lighten(program)
        status = program.main(args=words, prog_name="bsprof", standalone_mode=False, obj=terminal)
        return status if isinstance(status, int) else Exit.OK
    except BsprofError as error:
        _traceback(terminal)
        terminal.error(error)
        return exit_status(error)
    except _CommandLineProblem as problem:
        return _command_line_problem(problem, terminal)
    except KeyboardInterrupt:
        terminal.urgent("interrupted")
        return Exit.INTERRUPTED
    except Exception as error:  # the outermost frame: a bug ends in one short message
        if terminal.debug or "--debug" in words:
            raise
        terminal.error(
            BsprofError(
                f"a bug in bsprof: {type(error).__name__}: {error}",
                next_step="rerun with --debug to see where, and report it",
            )
        )
        return Exit.INTERNAL


def _needed(words: Sequence[str]) -> Sequence[str]:
    """The command that is asked for; all of them where help or a configuration may name others."""
    if words and words[0] in COMMANDS and config.find(Path()) is None:
        return words[:1]
    return COMMANDS


def _traceback(terminal: Terminal) -> None:
    if terminal.debug:
        import traceback

        traceback.print_exc()


def _command_line_problem(problem: Any, terminal: Terminal) -> int:
    message = problem.format_message()
    if type(problem).__name__ == "NoArgsIsHelpError":  # the message is the help
        terminal.urgent(message)
        return Exit.USAGE
    context = getattr(problem, "ctx", None)
    command = context.command_path if context is not None else "bsprof"
    terminal.error(UsageError(message, next_step=f"see `{command} --help`"))
    return Exit.USAGE
