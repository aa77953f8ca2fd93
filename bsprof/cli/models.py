"""`bsprof models`: what `--model` takes."""

from __future__ import annotations

import typer

from bsprof.cli.options import DOCUMENT_SCHEMA, Color, Debug, Json, Quiet, Verbose, terminal_of

EXAMPLE = "bsprof models"


def command(
    ctx: typer.Context,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    debug: Debug = False,
    color: Color = "auto",
) -> None:
    """List what --model takes."""
    terminal = terminal_of(ctx, quiet=quiet, verbose=verbose, debug=debug, color=color)
    from bsprof.workloads.names import BUILTINS

    known = [(name, BUILTINS[name].summary) for name in sorted(BUILTINS)]
    if as_json:
        import json

        models = [{"name": name, "summary": summary} for name, summary in known]
        document = {"schema": DOCUMENT_SCHEMA, "models": models}
        terminal.answer(json.dumps(document, indent=1, sort_keys=True))
        return
    terminal.table(("model", "what it is"), known)
    terminal.note("your own: --model file.py:factory or --model package.module:factory")
