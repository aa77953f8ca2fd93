"""`bsprof noise`: how noisy the gradient is, and what that says about the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bsprof.cli import diagnosing
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
    from bsprof.diagnose.noise.records import Noise, NoiseEstimate

EXAMPLE = "bsprof noise --model train.py:workload --micro-batch-size 8 --updates 4"


def command(
    ctx: typer.Context,
    model: diagnosing.Model,
    micro_batch_size: Annotated[
        int, typer.Option(metavar="N", min=1, help="Samples of a piece.")
    ] = 8,
    accumulation_steps: Annotated[
        int, typer.Option(metavar="K", min=2, help="Pieces of an update.")
    ] = 32,
    updates: Annotated[
        int, typer.Option(metavar="N", min=1, help="Optimizer steps to follow it over.")
    ] = 4,
    optimizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Optimizer of torch.optim or bitsandbytes.", show_default="adamw"
        ),
    ] = None,
    optimizer_option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Option of the optimizer; may be repeated."),
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
    """Measure the gradient noise scale on your data.

    From the pieces of a few accumulated updates, with a 90 % interval, also as Adam sees it, and
    how it moves. Too few pieces give "not enough", never a number.
    """
    terminal = terminal_of(ctx, quiet=quiet, verbose=verbose, debug=debug, color=color)
    from bsprof.diagnose.measure_noise import measure_noise

    spec = diagnosing.spec_of(
        model,
        model_option=model_option,
        seq_len=seq_len,
        image_size=image_size,
        trust_remote_code=trust_remote_code,
        seed=seed,
        optimizer=optimizer,
        optimizer_option=optimizer_option,
    )
    what = f"{updates} updates of {accumulation_steps} pieces of {micro_batch_size} samples"
    with diagnosing.showing(terminal, f"measuring the gradient noise of {model}: {what}"):
        found = measure_noise(
            spec,
            micro_batch_size=micro_batch_size,
            accumulation_steps=accumulation_steps,
            updates=updates,
            device=device,
        )
    for note in found.notes:
        terminal.note(note.message)
    if as_json:
        terminal.answer(_document(found))
    else:
        _show(terminal, found)


def _document(found: Noise) -> str:
    import json

    from bsprof.records.codec import to_json

    document = {"schema": DOCUMENT_SCHEMA, **to_json(found)}
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _show(terminal: Terminal, found: Noise) -> None:
    for sentence in found.says:
        terminal.answer(sentence)
    terminal.answer("")
    terminal.table(
        ("step", "noise scale", "90 % interval", "as the optimizer sees it"),
        [
            (
                str(at.step),
                _value(at.plain),
                _interval(at.plain),
                "" if at.preconditioned is None else _value(at.preconditioned),
            )
            for at in found.steps
        ],
        numeric=(0, 1, 3),
    )


def _value(estimate: NoiseEstimate) -> str:
    if estimate.noise_scale is None:
        return "not enough"
    return f"{estimate.noise_scale.value:.3g}"


def _interval(estimate: NoiseEstimate) -> str:
    if estimate.noise_scale is None:
        return ""
    return f"{estimate.noise_scale.low:.3g} to {estimate.noise_scale.high:.3g}"
