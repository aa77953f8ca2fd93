"""`bsprof check`: whether accumulated pieces give the whole batch's gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bsprof.cli import diagnosing
from bsprof.cli.exits import Exit
from bsprof.cli.options import (
    DOCUMENT_SCHEMA,
    Color,
    Debug,
    Json,
    Quiet,
    Verbose,
    terminal_of,
)

if TYPE_CHECKING:
    from bsprof.cli.terminal import Terminal
    from bsprof.diagnose.findings import Equivalence

EXAMPLE = "bsprof check --model train.py:workload --plan plan.json"

SHOWN = 8
"""Parameters in the table; all are in `--json`."""


def command(
    ctx: typer.Context,
    model: diagnosing.Model,
    micro_batch_size: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Samples of a piece.", show_default="4, 4 and 3"),
    ] = None,
    accumulation_steps: Annotated[
        int | None, typer.Option(metavar="K", min=2, help="Pieces of an update.")
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Take the pieces of a plan (`recommend -o FILE`)."),
    ] = None,
    weigh: Annotated[
        str,
        typer.Option(
            metavar="auto|samples|tokens|equal",
            help="What pieces are weighed by: auto is tokens where the workload counts them; "
            "equal is what most trainers do.",
        ),
    ] = "auto",
    precision: Annotated[
        str,
        typer.Option(
            metavar="fp64|amp-bf16|amp-fp16|bf16|fp16",
            help="Look at accumulation in the precision of the training, too.",
        ),
    ] = "fp64",
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="CAUSE", help="A cause that does not matter; may be repeated."),
    ] = None,
    model_option: diagnosing.ModelOption = None,
    seq_len: diagnosing.SeqLen = None,
    image_size: diagnosing.ImageSize = None,
    device: diagnosing.Device = "auto",
    trust_remote_code: diagnosing.TrustRemoteCode = False,
    seed: diagnosing.Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    debug: Debug = False,
    color: Color = "auto",
) -> None:
    """Compare the accumulated gradient with the whole batch's.

    On your model, data and loss, in double precision and per parameter. Where they differ, the
    causes are told apart, each with what to do. Exit status 0 when they are equal, 5 when not.
    """
    terminal = terminal_of(ctx, quiet=quiet, verbose=verbose, debug=debug, color=color)
    from bsprof.diagnose.check import check_equivalence

    spec = diagnosing.spec_of(
        model,
        model_option=model_option,
        seq_len=seq_len,
        image_size=image_size,
        trust_remote_code=trust_remote_code,
        seed=seed,
    )
    with diagnosing.showing(terminal, f"comparing gradients of {model}"):
        found = check_equivalence(
            spec,
            micro_batch_size=micro_batch_size,
            accumulation_steps=accumulation_steps,
            plan=plan,
            weigh=weigh,
            precision=precision,
            device=device,
            allow=allow or (),
        )
    for note in found.notes:
        terminal.note(note.message)
    if as_json:
        terminal.answer(_document(found))
    else:
        _show(terminal, found)
    if not found.equivalent:
        raise typer.Exit(Exit.NO_ANSWER)


def _document(found: Equivalence) -> str:
    import json

    from bsprof.records.codec import to_json

    document = {"schema": DOCUMENT_SCHEMA, **to_json(found)}
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _show(terminal: Terminal, found: Equivalence) -> None:
    pieces = ", ".join(map(str, found.pieces[:8])) + (", ..." if len(found.pieces) > 8 else "")
    verdict = "equivalent" if found.equivalent else "not equivalent"
    terminal.answer(
        f"{verdict}: pieces of {pieces} samples, weighed by {_by(found.weigh)}, against the whole "
        f"batch of {sum(found.pieces)}"
    )
    terminal.answer(
        f"relative difference of the gradient {found.relative_difference:.2g} in "
        f"{found.precision}, counted from {found.tolerance:.0e}"
    )
    for finding in found.findings:
        word = "cause" if finding.counts else "remark"
        word += " (allowed)" if finding.cause in found.allowed else ""
        terminal.answer(f"\n{word}: {finding.message} [{finding.cause}]")
        if finding.modules:
            names = (name or "the model itself" for name in finding.modules)
            terminal.answer(f"  where: {', '.join(names)}")
        terminal.answer(f"  fix: {finding.fix}")
    off = [p for p in found.parameters if p.relative_difference > found.tolerance]
    if off:
        terminal.answer("")
        terminal.table(
            ("parameter", "relative difference", "norm of the gradient"),
            [
                (p.name, f"{p.relative_difference:.2g}", f"{p.norm:.3g}")
                for p in off[: None if terminal.verbosity else SHOWN]
            ],
            numeric=(1, 2),
        )
        if len(off) > SHOWN and not terminal.verbosity:
            terminal.note(f"{len(off) - SHOWN} more parameters differ; -v shows them")


def _by(weigh: str) -> str:
    return "nothing (all equal)" if weigh == "equal" else weigh
