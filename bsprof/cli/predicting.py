"""A sweep that predicts: which devices are meant, what makes no sense there, and the answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bsprof.cli.exits import Exit
from bsprof.cli.options import DOCUMENT_SCHEMA, on_command_line
from bsprof.cli.terminal import Terminal
from bsprof.errors import UnknownDevice, UsageError
from bsprof.records import DeviceSpec, Profile, SweepPlan, WorkloadSpec

if TYPE_CHECKING:
    from bsprof.predict.target import Software

_MEASURING_ONLY = {
    "time_budget": "a prediction measures nothing and takes seconds",
    "find_max": "a prediction always looks for the largest size",
    "relative_error": "it is about measured times",
    "loader": "a loader is measured, on the machine that is to train",
    "resume": "a prediction is made anew, in seconds",
}
"""Options of a sweep that a prediction refuses, and why."""

_PREDICTING_ONLY = {
    "software": "a measurement uses what is installed",
    "world_size": "a measurement here is of one process",
    "parallel": "a measurement here is of one process",
    "allocator_conf": "a measurement reads PYTORCH_CUDA_ALLOC_CONF itself",
    "other_memory": "a measurement sees what others use",
    "from_profile": "a measurement needs no correction",
    "link_bandwidth": "a measurement here is of one process",
}
"""Options of a prediction that a measuring sweep refuses, and why."""

_POINT_COLUMNS = frozenset(
    {
        "micro_batch_size",
        "status",
        "samples_per_s",
        "micro_step_s",
        "optimizer_step_s",
        "device_used_bytes",
        "mfu",
        "regime",
        "reason",
    }
)
"""What a terminal shows of each predicted point; `-v` shows all, as do pipes and `--json`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which devices are meant.

    Attributes:
        here: The device of this machine to measure; empty for a prediction.
        devices: The devices to predict for; empty where one is measured.
    """

    here: str = ""
    devices: tuple[DeviceSpec, ...] = ()

    @property
    def is_prediction(self) -> bool:
        """Whether nothing is to be run on a device."""
        return bool(self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How the prediction's training is run; None takes the default of `predict_sweeps`."""

    software: Software | None = None
    world_size: int = 1
    parallel: str | None = None
    allocator_conf: str | None = None
    other_bytes: int = 0
    from_profile: str | None = None
    bus_bytes_per_s: float | None = None


def wanted(names: Sequence[str], *, predict: bool) -> Wanted:
    """What `--device` and `--predict` mean together.

    Raises:
        UnknownDevice: a name that neither this machine nor the catalogue has; near ones are told.
        DeviceUnavailable: `--predict` for an accelerator that is not here.
        UsageError: several devices to measure.
    """
    from bsprof.measure.devices.select import is_measured_name

    here = [name for name in names if is_measured_name(name)]
    if not predict and len(here) == len(names) == 1:
        return Wanted(here=here[0])
    if here and not predict:
        raise UsageError(
            f"cannot measure on {here[0]} and on another device in one sweep",
            next_step="give --device once; only predictions take several devices",
        )
    devices = [_this_machines(name) if name in here else _of_catalogue(name) for name in names]
    return Wanted(devices=tuple({device.name: device for device in devices}.values()))


def refuse_measuring_options(ctx: typer.Context) -> None:
    """Refuse flags that mean nothing in a prediction; from a configuration they give way.

    Raises:
        UsageError: one was given.
    """
    _refuse(ctx, _MEASURING_ONLY, "with a prediction")


def refuse_predicting_options(ctx: typer.Context) -> None:
    """Refuse flags that mean nothing where a sweep measures; from a configuration they give way.

    Raises:
        UsageError: one was given.
    """
    _refuse(ctx, _PREDICTING_ONLY, "where a sweep measures")


def run(
    terminal: Terminal,
    wanted: Wanted,
    spec: WorkloadSpec,
    plan: SweepPlan,
    setting: Setting,
    *,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Predict, save and answer.

    Args:
        output: File for the profile; `-` for stdout, None for the store.
    """
    from bsprof.cli.output import STDOUT, check_folder, check_output
    from bsprof.cli.progress import progress
    from bsprof.predict.sweep import predict_sweeps
    from bsprof.store import profile_path, read, store_folder
    from bsprof.workloads.names import check_model

    check_model(spec.model)
    check_output(output, force=force)
    file = Path(output) if output not in (None, STDOUT) else None
    if file is not None and len(wanted.devices) > 1:
        raise UsageError(
            f"one file cannot hold the profiles of {len(wanted.devices)} devices",
            next_step="leave -o out, and each gets its own in the store; or give --device once",
        )
    store = store_folder()
    measured = read(setting.from_profile, store).profile if setting.from_profile else None
    if file is None:
        check_folder(store, f"cannot write to the store {store}")
    try:
        with progress(terminal) as listener:
            profiles = predict_sweeps(
                spec,
                wanted.devices,
                plan=plan,
                software=setting.software,
                world_size=setting.world_size,
                parallel=setting.parallel,
                allocator_conf=setting.allocator_conf,
                other_bytes=setting.other_bytes,
                measured=measured,
                bus_bytes_per_s=setting.bus_bytes_per_s,
                output=file,
                store=store,
                on_event=listener,
            )
    except KeyboardInterrupt:
        terminal.urgent("interrupted; a prediction keeps nothing until it is whole")
        raise typer.Exit(Exit.INTERRUPTED) from None
    paths = [file or profile_path(profile, store) for profile in profiles]
    for path in paths:
        terminal.status(f"wrote {path}")
    if as_json or output == STDOUT:
        terminal.answer(_document(profiles))
    else:
        _show(terminal, profiles, paths)
    for profile in profiles:
        profile.raise_for_status()


def _document(profiles: Sequence[Profile]) -> str:
    """The profile as it is on disk; of several devices, one document with all of them."""
    from bsprof.records.codec import to_json
    from bsprof.store import dumps

    if len(profiles) == 1:
        return dumps(profiles[0])
    document = {"schema": DOCUMENT_SCHEMA, "profiles": [to_json(p) for p in profiles]}
    return json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n"


def _show(terminal: Terminal, profiles: Sequence[Profile], paths: Sequence[Path]) -> None:
    from bsprof.cli.show import show_summary
    from bsprof.report.summary import profile_summary

    columns = () if terminal.verbosity else _POINT_COLUMNS
    for profile, path in zip(profiles, paths, strict=True):
        summary = profile_summary(str(path), profile, detailed=bool(terminal.verbosity))
        show_summary(terminal, summary, columns=columns)


def _of_catalogue(name: str) -> DeviceSpec:
    from bsprof.hardware.calibration import calibrated_devices
    from bsprof.hardware.catalogue import find_device

    try:
        return find_device(name)
    except UnknownDevice as unknown:
        for spec in calibrated_devices():
            if spec.name == name:
                return spec
        raise UnknownDevice(
            f"cannot find a device named {name!r}",
            found=unknown.found,
            next_step=f"{unknown.next_step}; to measure on this machine use auto, cpu, cuda, "
            "cuda:N, mps or xpu",
        ) from None


def _this_machines(name: str) -> DeviceSpec:
    """What is known of a device of this machine."""
    from bsprof.measure.devices.select import parse_device_name
    from bsprof.predict.here import device_here

    kind = parse_device_name(name).kind
    if kind not in ("auto", "cuda", "cpu"):
        raise UsageError(
            f"cannot predict for {name}: predictions are for CUDA devices and processors",
            next_step="leave --predict out to measure it, or name a device of `bsprof devices`",
        )
    return device_here(name)


def _refuse(ctx: typer.Context, reasons: dict[str, str], where: str) -> None:
    for name, reason in reasons.items():
        if on_command_line(ctx, name):
            option = "--" + name.removesuffix("_profile").replace("_", "-")
            raise UsageError(
                f"{option} has no effect {where}",
                found=reason,
                next_step=f"leave {option} out",
            )
