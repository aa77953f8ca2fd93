"""From a device's name to a device. Torch is imported only when one is opened."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from bsprof.errors import DeviceUnavailable, UnknownDevice
from bsprof.measure.devices.protocol import Device

KINDS = ("cpu", "cuda", "mps", "xpu")
_NAME = re.compile(r"(auto|cpu|cuda|mps|xpu)(?::(\d+))?")


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A parsed name: `kind` is `auto` or one of `KINDS`; `index` is None where none was given."""

    kind: str
    index: int | None


def is_measured_name(name: str) -> bool:
    """Whether a name means a device of this machine, rather than one of the catalogue."""
    return _parsed(name) is not None


def parse_device_name(name: str) -> DeviceName:
    """The kind and index in a name like `auto`, `cpu`, `cuda` or `cuda:1`; loads no torch.

    Raises:
        UnknownDevice: anything else; names the near ones, of the catalogue too.
    """
    parsed = _parsed(name)
    if parsed is None:
        raise _unknown(name)
    return parsed


def _parsed(name: str) -> DeviceName | None:
    match = _NAME.fullmatch(name.strip().lower())
    if match is None or (match[2] and match[1] in ("auto", "cpu", "mps") and int(match[2]) > 0):
        return None
    return DeviceName(match[1], int(match[2]) if match[2] else None)


def _unknown(name: str) -> UnknownDevice:
    from bsprof.hardware.catalogue import devices_named, near_names

    known = ", ".join(device.name for device in devices_named(name))
    near = difflib.get_close_matches(name.strip().lower(), ("auto", *KINDS), n=3, cutoff=0.5)
    near = near or near_names(name)
    hint = f"did you mean {' or '.join(near)}? " if near and not known else ""
    return UnknownDevice(
        f"cannot find a device named {name!r} on this machine",
        found=f"in the catalogue, to predict for: {known}" if known else "",
        next_step=f"{hint}use auto, cpu, cuda, cuda:N, mps or xpu; `bsprof devices` lists others",
    )


def open_device(name: str, limit_bytes: int | None = None) -> Device:
    """Opens a device in this process; call it in a worker.

    Args:
        name: `auto` (the accelerator torch finds, else the CPU), `cpu`, `cuda`, `cuda:1`, ...
        limit_bytes: The user's own memory limit; None for none. Nothing is limited before
            `Device.apply_limit`.

    Raises:
        UnknownDevice: the name means nothing.
        DeviceUnavailable: this machine, or its torch build, has no such device.
    """
    wanted = parse_device_name(name)
    kind = available_kind() if wanted.kind == "auto" else wanted.kind
    if kind == "cpu":
        from bsprof.measure.devices.cpu import CpuDevice

        return CpuDevice(limit_bytes)
    from bsprof.measure.devices.accelerator import open_accelerator

    return open_accelerator(kind, wanted.index, limit_bytes)


def available_kind() -> str:
    """The kind of accelerator that torch can use here, else `cpu`."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    if torch.xpu.is_available():
        return "xpu"
    return "cpu"


def unavailable(kind: str, index: int | None, count: int) -> DeviceUnavailable:
    """The error for a known kind of device that is not there."""
    wanted = kind if index is None else f"{kind}:{index}"
    if count:
        return DeviceUnavailable(
            f"cannot open device {wanted}",
            found=f"{count} {kind} device{'s' if count > 1 else ''}, numbered from 0",
            next_step=f"use {kind}:0" + (f" to {kind}:{count - 1}" if count > 1 else ""),
        )
    return DeviceUnavailable(
        f"cannot open device {wanted}",
        found=f"this machine, or its torch build, offers no {kind} device",
        next_step="use --device cpu, or --device auto; `bsprof doctor` shows what torch sees",
    )
