"""`bsprof recommend`: micro-batch and accumulation steps for a target, from a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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
    on_command_line,
    terminal_of,
)
from bsprof.errors import ProfileNotFound, UsageError

if TYPE_CHECKING:
    from bsprof.cli.terminal import Terminal
    from bsprof.records import Profile

EXAMPLE = "bsprof recommend --target-batch 2048 --world-size 8"


def command(
    ctx: typer.Context,
    target_batch: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Samples per update, over all ranks.")
    ] = None,
    target_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The same in tokens.")
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="A file, or a name in the store; repeated: the best device for the target.",
            show_default="the newest",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="The newest profile of this model, or a prediction of it."
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="The newest profile of this device; with --model one of `bsprof devices` need "
            "not have any.",
        ),
    ] = None,
    precision: foretelling.Precision = None,
    seq_len: foretelling.SeqLen = None,
    image_size: foretelling.ImageSize = None,
    optimizer: foretelling.Optimizer = None,
    activation_checkpointing: foretelling.Checkpointing = None,
    compile_model: foretelling.Compile = False,
    channels_last: foretelling.ChannelsLast = False,
    world_size: Annotated[int, typer.Option(metavar="N", min=1, help="Data-parallel ranks.")] = 1,
    headroom: Annotated[
        str, typer.Option(metavar="5%|2GiB", help="Usable memory to leave free.")
    ] = "5%",
    tolerance: Annotated[
        str, typer.Option(metavar="0%", help="How far the effective batch may be off the target.")
    ] = "0%",
    objective: Annotated[
        str, typer.Option(metavar="time|memory|cost", help="What the best plan minimises.")
    ] = "time",
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DEVICE=2.5", help="Price of a device per hour, for --objective cost; repeated."
        ),
    ] = None,
    mixed: Annotated[
        str | None,
        typer.Option(
            metavar="4,4", help="Ranks of each --profile that train together, instead of choosing."
        ),
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="FRAMEWORK",
            help="Settings for pytorch, lightning, accelerate, hf, deepspeed, composer, axolotl, "
            "torchtitan or megatron.",
        ),
    ] = None,
    dataset_size: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Samples of an epoch.", show_default="the profile's"),
    ] = None,
    epochs: Annotated[int, typer.Option(metavar="N", min=1, help="Epochs of the schedule.")] = 1,
    warmup: Annotated[
        str | None, typer.Option(metavar="3%", help="Part of the schedule that warms up.")
    ] = None,
    current_batch: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Samples per update that the learning rate was tuned at."
        ),
    ] = None,
    noise_scale: Annotated[
        float | None,
        typer.Option(metavar="N", help="Gradient noise scale in samples, of `bsprof noise`."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the plan as JSON, or the settings of --for; - for stdout.",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    debug: Debug = False,
    color: Color = "auto",
) -> None:
    """Say what to train with for a target, and why.

    Micro-batch, accumulation steps and the pieces of every rank, read from a stored profile; or
    from a prediction, where --model and --device name what nothing is stored of.
    """
    terminal = terminal_of(ctx, quiet=quiet, verbose=verbose, debug=debug, color=color)
    from bsprof.cli import parse
    from bsprof.cli.choosing import Extras, answer_for
    from bsprof.cli.output import STDOUT, check_output, write_output
    from bsprof.cli.show import show_summary
    from bsprof.recommend.advice import Situation
    from bsprof.report.summary import recommendation_summary
    from bsprof.units import parse_share, parse_share_or_bytes

    lost = beaten(ctx, ("profile",), ("model", "device"))
    profile = None if "profile" in lost else profile
    model, device = (None, None) if "model" in lost else (model, device)
    lost = beaten(ctx, ("target_batch",), ("target_tokens",))
    target_batch = None if "target_batch" in lost else target_batch
    target_tokens = None if "target_tokens" in lost else target_tokens
    if profile and (model is not None or device is not None):
        raise UsageError(
            "--profile names one profile; --model and --device look for another",
            next_step="give --profile, or --model and --device",
        )
    foretelling.refuse_without_model(ctx, model)
    check_output(output, force=force)
    parse.one_of("objective", objective, ("time", "memory", "cost"))
    asked = None
    if model is not None:
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
    extras = Extras(
        prices=foretelling.prices(price or ()), mixed=mixed, framework=settings, objective=objective
    )
    extras.check(profiles=len(profile or ()))
    chosen = [
        _profile(ctx, terminal, named, asked, device, world_size) for named in (profile or (None,))
    ]
    answered = answer_for(
        chosen,
        extras,
        target_batch=target_batch,
        target_tokens=target_tokens,
        world_size=world_size,
        headroom=parse_share_or_bytes(headroom),
        tolerance=parse_share(tolerance),
        situation=Situation(
            current_batch=current_batch,
            noise_scale=noise_scale,
            dataset_size=dataset_size,
            epochs=epochs,
            warmup_share=None if warmup is None else parse_share(warmup),
        ),
    )
    answer = answered.answer
    content = answered.settings.text if answered.settings else _document(answered.document)
    if output is not None:
        write_output(output, content.encode(), terminal)
    if as_json and output != STDOUT:
        terminal.answer(_document(answered.document))
    elif not as_json and output != STDOUT:
        if answered.table is not None:
            show_summary(terminal, answered.table)
        show_summary(terminal, recommendation_summary(answer, answered.profile))
        if answered.settings is not None and output is None:
            terminal.answer(answered.settings.text)


def _profile(
    ctx: typer.Context,
    terminal: Terminal,
    named: str | None,
    asked: foretelling.Asked | None,
    device: str | None,
    world_size: int,
) -> tuple[str, Profile]:
    """A stored profile; one predicted now where a device is named, and nothing is stored for it."""
    from bsprof.cli.choice import chosen_profile

    model = asked.model if asked is not None else None
    possible = asked is not None and foretelling.is_of_catalogue(device)
    if possible and on_command_line(ctx, *foretelling.NAMES):
        return _predicted(terminal, asked, device, world_size)
    foretelling.refuse_where_stored(ctx)
    try:
        return chosen_profile(terminal, named, model=model, device=device)
    except ProfileNotFound as missing:
        if possible:
            return _predicted(terminal, asked, device, world_size)
        if model is None:
            raise
        raise ProfileNotFound(
            missing.doing,
            found=missing.found,
            next_step="sweep it, or name with --device one of `bsprof devices` to predict it for",
        ) from None


def _predicted(
    terminal: Terminal, asked: foretelling.Asked | None, device: str | None, world_size: int
) -> tuple[str, Profile]:
    assert asked is not None
    assert device is not None
    devices = foretelling.devices_of([device])
    [found] = foretelling.predicted(terminal, asked, devices, world_size=world_size)
    return found


def _document(document: dict[str, Any]) -> str:
    import json

    return json.dumps(document, indent=1, sort_keys=True) + "\n"
