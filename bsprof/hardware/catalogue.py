"""The device catalogue: which devices are known, and which of them a name means.

Names are compared whole, after their spelling is made even; never in parts, so that an RTX 4090 D,
a laptop's 4090 or a MIG slice is not taken for the card whose name it contains.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from bsprof.errors import CalibrationError, UnknownDevice
from bsprof.hardware.device_file import read_device_file
from bsprof.records import DeviceSpec
from bsprof.store.data import data_folder
from bsprof.store.folder import store_folder
from bsprof.units import format_bytes

CALIBRATION_VARIABLE = "BSPROF_CALIBRATION"
"""Environment variable: a folder of the user's own, laid out like `calibration_data`."""

CALIBRATION_FOLDER = "calibration"
"""Name of that folder where the variable is not set: it lies beside the store of profiles."""

NEXT_STEP = (
    "see `bsprof devices` for all of them; others can be added in the folder that "
    f"{CALIBRATION_VARIABLE} names"
)

_NOISE = frozenset(
    {"nvidia", "amd", "geforce", "tesla", "instinct", "radeon", "generation", "graphics", "gpu"}
)
_AMOUNT = re.compile(r"(\d*)g(?:ib)?")
_LEAST_MEMORY = (1 - 1 / 16) * 0.99
"""A device may report so little of the least capacity: ECC takes a sixteenth where it is on."""
_MOST_MEMORY = 1.01
"""A device may report so much of the nominal memory."""


def devices() -> tuple[DeviceSpec, ...]:
    """Every known device, sorted by name; the user's own win over those of the same name.

    Raises:
        CalibrationError: a file cannot be understood, or `BSPROF_CALIBRATION` is no folder.
    """
    return tuple(_catalogue(own_folder()).values())


def find_device(
    name: str, *, compute_units: int | None = None, memory_bytes: float | None = None
) -> DeviceSpec:
    """The device that a name means.

    Args:
        name: As the catalogue, `nvidia-smi`, torch or people write it: `rtx-4090`,
            `NVIDIA GeForce RTX 4090`, `4090`, `A100-SXM4-80GB`.
        compute_units: SMs as the device reports them; a device with another number is not meant.
        memory_bytes: Total memory as the device reports it; a device that cannot have so much, or
            so little, is not meant.

    Raises:
        UnknownDevice: no device has that name (near ones are named), none of those that have it
            has these units and this memory, or several have it (they are named).
        CalibrationError: as `devices`.
    """
    named = devices_named(name)
    if not named:
        raise _unknown(name)
    matching = [d for d in named if _is_like(d, compute_units, memory_bytes)]
    if len(matching) > 1:
        raise UnknownDevice(
            f"{name!r} names several devices",
            found=", ".join(d.name for d in matching),
            next_step="name one of them",
        )
    if not matching:
        raise _unlike(name, named, compute_units, memory_bytes)
    return matching[0]


def devices_named(name: str) -> tuple[DeviceSpec, ...]:
    """Every device that the name may mean, sorted by name: a short one may mean several."""
    return _by_key(own_folder()).get(_key(name), ())


def near_names(name: str) -> list[str]:
    """Names of the catalogue that resemble the name, the nearest first; at most three."""
    by_key = _by_key(own_folder())
    near = difflib.get_close_matches(_key(name), by_key, n=6, cutoff=0.6)
    return [*dict.fromkeys(device.name for key in near for device in by_key[key])][:3]


def calibration_folder() -> Path:
    """Where calibrations of the user's own are written; it need not exist."""
    text = os.environ.get(CALIBRATION_VARIABLE, "").strip()
    return (Path(text) if text else store_folder().parent / CALIBRATION_FOLDER).absolute()


def own_folder() -> Path | None:
    """The user's folder; None where there is none. One that the variable names may be missing."""
    folder = calibration_folder()
    named = os.environ.get(CALIBRATION_VARIABLE, "").strip()
    return folder if named or folder.is_dir() else None


@functools.cache
def _catalogue(own: Path | None) -> Mapping[str, DeviceSpec]:
    """From name to device, sorted: those that travel with bsprof, and the user's own over them."""
    if own is not None and not own.is_dir():
        raise CalibrationError(
            f"cannot read the folder {own}",
            found=f"no folder of that name, given by {CALIBRATION_VARIABLE}",
            next_step="name an existing folder, or unset the variable",
        )
    found = _read(data_folder("calibration_data")) | (_read(own) if own is not None else {})
    return MappingProxyType(dict(sorted(found.items())))


def _read(folder: Path) -> dict[str, DeviceSpec]:
    found: dict[str, DeviceSpec] = {}
    for file in sorted((folder / "devices").glob("*.toml")):
        for device in read_device_file(file):
            if device.name in found:
                raise CalibrationError(
                    f"cannot read {file}",
                    found=f"devices.{device.name}: there is a device of that name already",
                    next_step="give it a name of its own",
                )
            found[device.name] = device
    return found


@functools.cache
def _by_key(own: Path | None) -> Mapping[str, tuple[DeviceSpec, ...]]:
    """From every name and alias, made even, to the devices that bear it.

    A name of the catalogue, or one that the user's own devices bear, means nothing else.
    """
    known = _catalogue(own)
    users = set(_read(own)) if own is not None else set()
    names = {_key(name) for name in known}
    found: dict[str, list[DeviceSpec]] = {}
    for device in known.values():
        for key in {_key(text) for text in (device.name, device.title, *device.aliases)}:
            if key == _key(device.name) or key not in names:
                found.setdefault(key, []).append(device)
    for key, bearers in found.items():
        found[key] = [d for d in bearers if d.name in users] or bearers
    return MappingProxyType({key: tuple(bearers) for key, bearers in found.items()})


def _key(name: str) -> str:
    """A name without case, punctuation, makers' names and the difference of 80G, 80GB, 80 GiB."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    kept = (word for word in words if word not in _NOISE)
    return "".join(f"{match[1]}gb" if (match := _AMOUNT.fullmatch(word)) else word for word in kept)


def _is_like(device: DeviceSpec, compute_units: int | None, memory_bytes: float | None) -> bool:
    least = device.capacity_bytes.low * _LEAST_MEMORY
    most = device.nominal_memory_bytes * _MOST_MEMORY
    return (compute_units is None or compute_units == device.compute_units) and (
        memory_bytes is None or least <= memory_bytes <= most
    )


def _unknown(name: str) -> UnknownDevice:
    near = near_names(name)
    found = f"near: {', '.join(near)}" if near else ""
    if re.search(r"\bmig\b", name.lower()):
        found = "a MIG slice: a part of a device that no data sheet describes"
    return UnknownDevice(
        f"no device of the catalogue is named {name!r}", found=found, next_step=NEXT_STEP
    )


def _unlike(
    name: str,
    named: Sequence[DeviceSpec],
    compute_units: int | None,
    memory_bytes: float | None,
) -> UnknownDevice:
    reported = [] if compute_units is None else [f"{compute_units} compute units"]
    reported += [] if memory_bytes is None else [format_bytes(memory_bytes)]
    expected = "; ".join(
        f"{d.name} has {d.compute_units} and {format_bytes(d.capacity_bytes.value)}" for d in named
    )
    return UnknownDevice(
        f"no device of the catalogue is a {name!r} with {' and '.join(reported)}",
        found=expected,
        next_step=NEXT_STEP,
    )
