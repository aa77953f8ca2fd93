"""`bsprof validate`: predictions against published measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    from bsprof.validate.answer import Sheet
    from bsprof.validate.scores import Share

EXAMPLE = "bsprof validate --quantity memory"

_QUANTITIES = ("memory", "time")


def command(
    ctx: typer.Context,
    quantity: Annotated[
        str, typer.Option("--quantity", metavar="memory|time", help="What is compared.")
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
    leave_out: Annotated[
        str | None,
        typer.Option(
            "--leave-out",
            metavar="GPU",
            help="Predict times with coefficients fitted without this device's kernels and "
            "maxima, by device name.",
            show_default="the shipped coefficients",
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

    one_of("quantity", quantity, _QUANTITIES)
    wants_json = json_wanted(ctx, as_json=as_json, to_stdout=output == STDOUT)
    check_output(output, force=force)
    if measurements is None and (source is not None or leave_out is not None):
        raise UsageError(
            f"{'--source' if source is not None else '--leave-out'} has no effect on the cited "
            "figures",
            next_step="name a folder with --measurements, or leave it out",
        )
    if leave_out is not None and quantity != "time":
        raise UsageError(
            "--leave-out has no effect on predictions of memory",
            next_step="leave it out, or ask for --quantity time",
        )
    folder = cache if cache is not None else store_folder() / "traces"

    def telling(number: int, count: int, model: str) -> None:
        terminal.status(f"{number + 1} of {count}: {model}")

    made = _times if quantity == "time" else _memory
    answer = made(measurements, source, limit, folder, telling, leave_out)
    if answer.stopped:
        terminal.note("stopped: the tables are of what was done until then")
    share = answer.share
    terminal.note(f"{share.hits} of {share.count} rows that should be are scored")
    if wants_json:
        _print_json(terminal, answer)
    elif output is not None:
        write_output(output, _markdown(answer.sheets).encode(), terminal)
    else:
        for sheet in answer.sheets:
            terminal.fields(sheet.title)
            terminal.table(sheet.columns, sheet.rows, numeric=set(sheet.numeric))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What is told of a validation, whatever was compared.

    Attributes:
        sheets: Tables.
        rows: Of the JSON document, one a predicted row.
        share: Rows that are scored, of those that should be.
        stopped: Whether it was ended early.
    """

    sheets: Sequence[Sheet]
    rows: Sequence[Mapping[str, Any]]
    share: Share
    stopped: bool


_Telling = Callable[[int, int, str], None]


def _memory(
    measurements: Path | None,
    source: str | None,
    limit: int | None,
    cache: Path,
    telling: _Telling,
    _leave_out: str | None,
) -> _Answer:
    from bsprof.records.codec import to_json
    from bsprof.validate.answer import sheets
    from bsprof.validate.cited import cited
    from bsprof.validate.collect import collect
    from bsprof.validate.run import validate

    if measurements is None:
        collected = cited(limit=limit)
    else:
        collected = collect(measurements, source=source, limit=limit)
    done = validate(collected, cache, lambda n, count, g: telling(n, count, g.first.model))
    rows = [
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
        for o in done.outcomes
    ]
    return _Answer(sheets=sheets(done), rows=rows, share=done.scored(), stopped=done.stopped)


def _times(
    measurements: Path | None,
    source: str | None,
    limit: int | None,
    cache: Path,
    telling: _Telling,
    leave_out: str | None,
) -> _Answer:
    from bsprof.hardware.catalogue import find_device
    from bsprof.records.codec import to_json
    from bsprof.validate.time.answer import sheets
    from bsprof.validate.time.cited import cited
    from bsprof.validate.time.collect import collect
    from bsprof.validate.time.folds import calibration_without
    from bsprof.validate.time.run import validate

    calibration = None
    if measurements is None:
        collected = cited(limit=limit)
    else:
        collected = collect(measurements, source=source, limit=limit)
        if leave_out is not None:
            leave_out = find_device(leave_out).name
            calibration = calibration_without(
                measurements,
                leave_out,
                cache,
                lambda n, count, g: telling(n, count, f"{g.first.model}, to fit"),
            )
    done = validate(
        collected,
        cache,
        calibration=calibration,
        left_out_gpu=leave_out,
        on_group=lambda n, count, g: telling(n, count, g.first.model),
    )
    rows = [
        {
            "row": o.case.row,
            "source": o.case.source,
            "set": o.set_name,
            "model": o.case.model,
            "device": o.case.device,
            "precision": o.case.spec.precision.value,
            "micro_batch_size": o.case.micro_batch,
            "quantity": o.case.quantity.value,
            "measured_s": o.case.seconds,
            "predicted_s": to_json(o.predicted),
            "data_sheet_s": o.sheet_s,
            "is_scored": o.is_scored,
            "bound_by": o.regime.value,
            "host_s": o.host_s,
            "made_of_s": {name.value: seconds for name, seconds in o.by_class_s.items()},
        }
        for o in done.outcomes
    ]
    return _Answer(sheets=sheets(done), rows=rows, share=done.share(), stopped=done.stopped)


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


def _print_json(terminal: Terminal, answer: _Answer) -> None:
    import json

    document = {
        "schema": DOCUMENT_SCHEMA,
        "sheets": [{"title": s.title, "columns": s.columns, "rows": s.rows} for s in answer.sheets],
        "rows": answer.rows,
    }
    terminal.answer(json.dumps(document, indent=1, sort_keys=True))
