"""`bsprof validate`: predictions against published measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bsprof.cli.options import (
    DOCUMENT_SCHEMA,
    Color,
    Debug,
    Force,
    Json,
    Quiet,
    Verbose,
    json_wanted,
    terminal_of,
)
from bsprof.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bsprof.cli.terminal import Terminal
    from bsprof.validate.answer import Sheet, Validation

EXAMPLE = "bsprof validate --quantity memory"

_QUANTITIES = ("memory",)


def command(
    ctx: typer.Context,
    quantity: Annotated[
        str, typer.Option("--quantity", metavar="memory", help="What is compared.")
    ] = "memory",
    measurements: Annotated[
        Path | None,
        typer.Option(
            "--measurements",
            metavar="DIR",
            help="Folder of published measurements; every row that can be rebuilt is compared.",
            show_default="a small table of cited figures",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME", help="Only this source.", show_default="all"),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=1,
            help="At most N models of each source, drawn by family, the same ones every time.",
            show_default="all",
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            metavar="DIR",
            help="Where traces are kept for the next run.",
            show_default="traces in the store",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the tables as Markdown to FILE (- for stdout).",
            show_default="tables on stdout",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    debug: Debug = False,
    color: Color = "auto",
) -> None:
    """Compare predictions with published measurements.

    Nothing is measured here. An interrupted run tells what it has; started again, it goes on.
    """
    terminal = terminal_of(ctx, quiet=quiet, verbose=verbose, debug=debug, color=color)
    from bsprof.cli.output import STDOUT, check_output, write_output
    from bsprof.cli.parse import one_of
    from bsprof.store import store_folder
    from bsprof.validate.answer import sheets
    from bsprof.validate.cited import cited
    from bsprof.validate.collect import collect
    from bsprof.validate.run import validate

    one_of("quantity", quantity, _QUANTITIES)
    wants_json = json_wanted(ctx, as_json=as_json, to_stdout=output == STDOUT)
    check_output(output, force=force)
    if measurements is None:
        if source is not None:
            raise UsageError(
                "--source has no effect on the cited figures",
                next_step="name a folder with --measurements, or leave it out",
            )
        collected = cited(limit=limit)
    else:
        collected = collect(measurements, source=source, limit=limit)
    validation = validate(
        collected,
        cache if cache is not None else store_folder() / "traces",
        lambda number, count, group: terminal.status(
            f"{number + 1} of {count}: {group.first.model}"
        ),
    )
    found = sheets(validation)
    if validation.stopped:
        terminal.note("stopped: the tables are of what was done until then")
    share = validation.scored()
    terminal.note(f"{share.hits} of {share.count} rows that should be are scored")
    if wants_json:
        _print_json(terminal, validation, found)
    elif output is not None:
        write_output(output, _markdown(found).encode(), terminal)
    else:
        for sheet in found:
            terminal.fields(sheet.title)
            terminal.table(sheet.columns, sheet.rows, numeric=set(sheet.numeric))


def _markdown(found: Sequence[Sheet]) -> str:
    """The tables as Markdown."""
    from bsprof.report.markdown import escaped

    parts = []
    for sheet in found:
        rule = ["---:" if i in sheet.numeric else "---" for i in range(len(sheet.columns))]
        rows = [sheet.columns, rule, *sheet.rows]
        lines = [
            "| " + " | ".join(cell if row is rule else escaped(cell) for cell in row) + " |"
            for row in rows
        ]
        parts.append("\n".join([f"### {escaped(sheet.title)}", "", *lines, ""]))
    return "\n".join(parts)


def _print_json(terminal: Terminal, validation: Validation, found: Sequence[Sheet]) -> None:
    import json

    from bsprof.records.codec import to_json

    document = {
        "schema": DOCUMENT_SCHEMA,
        "sheets": [{"title": s.title, "columns": s.columns, "rows": s.rows} for s in found],
        "rows": [
            {
                "row": o.case.row,
                "source": o.case.source,
                "model": o.case.model,
                "device": o.case.device,
                "micro_batch_size": o.case.micro_batch,
                "quantity": o.case.measured.kind.value if o.case.measured else None,
                "measured_bytes": o.case.measured.bytes if o.case.measured else None,
                "predicted_bytes": to_json(o.predicted),
                "bracket": to_json(o.answer),
                "made_of_bytes": dict(o.made_of),
            }
            for o in validation.outcomes
        ],
    }
    terminal.answer(json.dumps(document, indent=1, sort_keys=True))
