"""Answers that need no stored profile: the workload is predicted for the devices asked about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from bsprof.cli.exits import Exit
from bsprof.cli.options import on_command_line
from bsprof.cli.terminal import Terminal
from bsprof.errors import UsageError
from bsprof.records import DeviceSpec, Profile, WorkloadSpec

Precision = Annotated[
    str | None,
    typer.Option(
        metavar="fp32|fp32-strict|tf32|amp-bf16|amp-fp16|bf16|fp16",
        help="Of a prediction made for this answer.",
        show_default="fp32",
    ),
]
SeqLen = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Tokens per sample, of a prediction.")
]
ImageSize = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Pixels per side, of a prediction.")
]
Optimizer = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Optimizer, of a prediction.", show_default="adamw"),
]
Checkpointing = Annotated[
    str | None,
    typer.Option(
        metavar="none|full|N", help="Recompute blocks, in a prediction.", show_default="none"
    ),
]
Compile = Annotated[bool, typer.Option("--compile", help="Predict the compiled model.")]
ChannelsLast = Annotated[
    bool, typer.Option("--channels-last", help="Predict with images held channels last.")
]

NAMES = (
    "precision",
    "seq_len",
    "image_size",
    "optimizer",
    "activation_checkpointing",
    "compile_model",
    "channels_last",
)
"""Parameters of a command that say what to predict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a command says of the workload; what it leaves open is as usual."""

    model: str
    precision: str | None = None
    seq_len: int | None = None
    image_size: int | None = None
    optimizer: str | None = None
    activation_checkpointing: str | None = None
    compile_model: bool = False
    channels_last: bool = False

    def spec(self) -> WorkloadSpec:
        """The workload.

        Raises:
            UsageError: an unknown precision, or a way of checkpointing that is none.
        """
        from bsprof.cli import parse
        from bsprof.records import Precision as Known
        from bsprof.workloads.blocks import parse_checkpointing

        precision = self.precision or Known.FP32.value
        checkpointing = self.activation_checkpointing or "none"
        parse_checkpointing(checkpointing)
        return WorkloadSpec(
            model=self.model,
            seq_len=self.seq_len,
            image_size=self.image_size,
            precision=Known(parse.one_of("precision", precision, Known)),
            optimizer=self.optimizer or "adamw",
            activation_checkpointing=checkpointing,
            compile=self.compile_model,
            channels_last=self.channels_last,
        )


def refuse_without_model(ctx: typer.Context, model: str | None) -> None:
    """Refuse options that say what to predict where nothing can be predicted.

    Raises:
        UsageError: one was given as a flag, and no model.
    """
    if model is None:
        refuse_where_stored(ctx)


def refuse_where_stored(ctx: typer.Context) -> None:
    """Refuse the same options where the answer is read from a stored profile.

    Raises:
        UsageError: one was given as a flag.
    """
    given = [name for name in NAMES if on_command_line(ctx, name)]
    if given:
        option = "--" + given[0].removesuffix("_model").replace("_", "-")
        raise UsageError(
            f"{option} has no effect on a stored profile",
            next_step="name what to predict with --model, and with --device one of `bsprof "
            "devices`; or leave it out",
        )


def devices_of(names: Sequence[str]) -> tuple[DeviceSpec, ...]:
    """The devices to predict for, each once.

    Raises:
        UnknownDevice: a name that is none of the catalogue's.
        UsageError: a device that no prediction can be made for.
    """
    from bsprof.cli.predicting import wanted

    return wanted(names, predict=True).devices


def predicted(
    terminal: Terminal, asked: Asked, devices: Sequence[DeviceSpec], *, world_size: int
) -> list[tuple[str, Profile]]:
    """Predicted profiles of devices, kept in the store, with their names there.

    Args:
        world_size: Data-parallel ranks, joined as by DistributedDataParallel.

    Raises:
        UsageError, WorkloadError: as `bsprof sweep`.
        OutputError: the store cannot be written to.
    """
    from bsprof.cli.output import check_folder
    from bsprof.cli.progress import progress
    from bsprof.predict.sweep import predict_sweeps
    from bsprof.store import profile_path, store_folder
    from bsprof.workloads.names import check_model

    store = store_folder()
    check_folder(store, f"cannot write to the store {store}")
    spec = asked.spec()
    check_model(spec.model)
    try:
        with progress(terminal) as listener:
            profiles = predict_sweeps(
                spec, devices, world_size=world_size, store=store, on_event=listener
            )
    except KeyboardInterrupt:
        terminal.urgent("interrupted; a prediction keeps nothing until it is whole")
        raise typer.Exit(Exit.INTERRUPTED) from None
    found = []
    for profile in profiles:
        name = profile_path(profile, store).relative_to(store).as_posix().removesuffix(".json")
        terminal.note(f"predicted for {profile.device.name}: profile {name}")
        found.append((name, profile))
    return found


def is_of_catalogue(device: str | None) -> bool:
    """Whether a name means a device of the catalogue, and not one of this machine."""
    from bsprof.errors import UnknownDevice
    from bsprof.hardware.catalogue import find_device
    from bsprof.measure.devices.select import is_measured_name

    if device is None or is_measured_name(device):
        return False
    try:
        find_device(device)
    except UnknownDevice:
        return False
    return True


def prices(texts: Sequence[str]) -> Mapping[str, float]:
    """Prices per hour from `A=2.5` texts, by the device's name as given.

    Raises:
        UsageError: no number above zero, or a device twice.
    """
    import math

    found: dict[str, float] = {}
    for text in texts:
        name, equals, amount = text.partition("=")
        try:
            price = float(amount)
        except ValueError:
            price = math.nan
        if not equals or not name or not (0 < price < math.inf):
            raise UsageError(
                f"cannot read --price {text!r}",
                next_step="write a device and its price per hour: a100-80gb-sxm=2.5",
            )
        if name in found:
            raise UsageError(f"--price {name} is given twice", next_step="give it once")
        found[name] = price
    return found
