"""`bsprof doctor`: what is wrong with this machine."""

from __future__ import annotations

import typer

from bsprof.cli.exits import Exit
from bsprof.cli.options import DOCUMENT_SCHEMA, Color, Debug, Json, Quiet, Verbose, terminal_of

EXAMPLE = "bsprof doctor"


def command(
    ctx: typer.Context,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    debug: Debug = False,
    color: Color = "auto",
) -> None:
    """Check what is wrong with this machine.

    Python, torch, the devices, memory limits and the store; exit status 3 if a check failed.
    """
    terminal = terminal_of(ctx, quiet=quiet, verbose=verbose, debug=debug, color=color)
    from bsprof.measure.doctor import examine

    checks = examine()
    if as_json:
        import json

        from bsprof.records.codec import to_json

        document = {"schema": DOCUMENT_SCHEMA, "checks": to_json(checks)}
        terminal.answer(json.dumps(document, indent=1, sort_keys=True))
    else:
        terminal.table(
            ("check", "status", "found"), [[c.name, str(c.status), c.found] for c in checks]
        )
        for check in checks:
            if check.hint and check.status != "ok":
                terminal.note(f"{check.name}: {check.hint}", label="warning")
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(Exit.INPUT)
