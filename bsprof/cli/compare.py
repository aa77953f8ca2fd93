"""`bsprof compare`: profiles side by side, stored or predicted for the purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bsprof.cli import foretelling
from bsprof.cli.options import (
    Color,
    Debug,
    Force,
    Json,
    Quiet,
    Verbose,
    beaten,
    json_wanted,
    on_command_line,
    refuse_without_target,
    terminal_of,
)
from bsprof.errors import UsageError

if TYPE_CHECKING:
    from bsprof.cli.terminal import Terminal
    from bsprof.recommend.compared import Comparison

EXAMPLE = "bsprof compare fp32.json amp-bf16.json --target-batch 2048"


def command(
    ctx: typer.Context,
    profiles: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROFILE PROFILE...]", help="Files, or names in the store.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Predict this model for every --device instead."),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(metavar="DEVICE", help="A name of `bsprof devices` to predict for; repeated."),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DEVICE=2.5", help="Price of a device per hour: rank by cost too; repeated."
        ),
    ] = None,
    precision: foretelling.Precision = None,
    seq_len: foretelling.SeqLen = None,
    image_size: foretelling.ImageSize = None,
    optimizer: foretelling.Optimizer = None,
    activation_checkpointing: foretelling.Checkpointing = None,
    compile_model: foretelling.Compile = False,
    channels_last: foretelling.ChannelsLast = False,
    target_batch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Compare the plans for this target.",
            show_default="the fastest sizes",
        ),
    ] = None,
    target_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The same in tokens.")
    ] = None,
    world_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Data-parallel ranks.", show_default="1")
    ] = None,
    headroom: Annotated[
        str | None,
        typer.Option(metavar="5%|2GiB", help="Usable memory to leave free.", show_default="5%"),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write a report too: .html, .pdf, .md, .png or .csv; - for stdout.",
        ),
    ] = None,
    report_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="html|pdf|md|png|csv",
            help="Format of FILE.",
            show_default="its ending",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    debug: Debug = False,
    color: Color = "auto",
) -> None:
    """Compare profiles, or devices that need not be here.

    Side by side: which is the fastest and by how much, what differs, and the best micro-batch of
    each; with --model, of predictions for each --device, and with --price which is the cheapest.
    """
    terminal = terminal_of(ctx, quiet=quiet, verbose=verbose, debug=debug, color=color)
    from bsprof.cli.choice import chosen_profile
    from bsprof.cli.output import STDOUT, check_output, write_output
    from bsprof.cli.report import format_of
    from bsprof.recommend.compare import compare_profiles
    from bsprof.recommend.ranking import refuse_useless_prices
    from bsprof.records import DEFAULT_HEADROOM
    from bsprof.units import parse_share_or_bytes

    as_json = json_wanted(ctx, as_json=as_json, to_stdout=output == STDOUT)
    lost = beaten(ctx, ("target_batch",), ("target_tokens",))
    target_batch = None if "target_batch" in lost else target_batch
    target_tokens = None if "target_tokens" in lost else target_tokens
    _refuse_useless(ctx, target=target_batch or target_tokens, output=output)
    kind = None if output is None else format_of(output, report_format)
    check_output(output, force=force)
    prices = foretelling.prices(price or ())
    foretelling.refuse_without_model(ctx, model)
    if model is None:
        if device:
            raise UsageError(
                "--device has no effect on stored profiles",
                next_step="name what to predict with --model, or leave it out",
            )
        chosen = [chosen_profile(terminal, name) for name in profiles or ()]
    else:
        asked = foretelling.Asked(
            model=model,
            precision=precision,
            seq_len=seq_len,
            image_size=image_size,
            optimizer=optimizer,
            activation_checkpointing=activation_checkpointing,
            compile_model=compile_model,
            channels_last=channels_last,
        )
        devices = foretelling.devices_of(device or ())
        if not devices or len(devices) + len(profiles or ()) < 2:
            raise UsageError(
                f"a comparison needs at least two devices to predict {model} for",
                found=devices[0].name if devices else "none",
                next_step="name them with --device, as `bsprof devices` lists them, or add a "
                "stored profile",
            )
        chosen = [chosen_profile(terminal, name) for name in profiles or ()]
        refuse_useless_prices(prices, devices, [profile for _, profile in chosen])
        chosen += foretelling.predicted(terminal, asked, devices, world_size=world_size or 1)
    comparison = compare_profiles(
        chosen,
        target_batch=target_batch,
        target_tokens=target_tokens,
        world_size=world_size or 1,
        headroom=DEFAULT_HEADROOM if headroom is None else parse_share_or_bytes(headroom),
        prices=prices,
    )
    comparison.raise_for_status()
    if output is not None and kind is not None:
        from bsprof.report import build_report, render

        report = build_report(chosen, comparison=comparison)
        write_output(output, render(kind, report), terminal)
    if as_json:
        terminal.answer(_document(comparison))
    elif output != STDOUT:
        _show(terminal, comparison)


def _refuse_useless(ctx: typer.Context, *, target: int | None, output: str | None) -> None:
    """Refuse options that change nothing as the command line stands.

    Raises:
        UsageError: one of them was given as a flag.
    """
    if target is None:
        refuse_without_target(ctx, ("world_size", "headroom"))
    if output is None and on_command_line(ctx, "report_format"):
        raise UsageError("--format has no effect without -o", next_step="name a file with -o")


def _show(terminal: Terminal, comparison: Comparison) -> None:
    from dataclasses import replace

    from bsprof.cli.show import show_summary
    from bsprof.recommend.compare_notes import UNLIKE
    from bsprof.report.comparison import comparison_summary
    from bsprof.report.words import note_text

    show_summary(terminal, replace(comparison_summary(comparison), notes=()))
    for note in comparison.notes:
        if note.code != "incomplete-profile":  # told, with a way to finish it, when it was read
            terminal.note(note_text(note), label="warning" if note.code in UNLIKE else "note")


def _document(comparison: Comparison) -> str:
    import json

    from bsprof.recommend.compare_document import comparison_document

    return json.dumps(comparison_document(comparison), indent=1, sort_keys=True)
