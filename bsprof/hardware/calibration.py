"""The fitted coefficients of the time model: those that travel with bsprof, and the user's own.

The shipped file is `calibration_data/roofline.json`. Over it go the files of the folder that
`BSPROF_CALIBRATION` names, by default `calibration` beside the store: `roofline.json` there
replaces it, `rooflines/*.json` are devices, each written by `bsprof calibrate`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any, TypeVar

from bsprof.errors import CalibrationError, ProfileFormatError
from bsprof.hardware.catalogue import CALIBRATION_VARIABLE, own_folder
from bsprof.records.calibration import CALIBRATION_SCHEMA, Calibration, DeviceCalibration
from bsprof.records.codec import from_json, to_json
from bsprof.records.device import DeviceSpec
from bsprof.store.data import data_folder
from bsprof.store.files import atomic_write

ROOFLINE_FILE = "roofline.json"
DEVICE_FOLDER = "rooflines"

T = TypeVar("T")


def shipped_calibration() -> Calibration:
    """The calibration that predictions use: the shipped one, the user's devices over it.

    Raises:
        CalibrationError: a file is missing or cannot be understood, or `BSPROF_CALIBRATION` is no
            folder.
    """
    own = own_folder()
    return _calibration(own, _state(own))


def packaged_calibration() -> Calibration:
    """The calibration that travels with bsprof, whatever the user has.

    Raises:
        CalibrationError: it is missing or cannot be understood.
    """
    return load_calibration(data_folder("calibration_data") / ROOFLINE_FILE)


def calibrated_devices() -> tuple[DeviceSpec, ...]:
    """Devices that the catalogue lacks and that were calibrated here, sorted by name.

    Raises:
        CalibrationError: as `shipped_calibration`.
    """
    own = own_folder()
    files = sorted((own / DEVICE_FOLDER).glob("*.json")) if own is not None else []
    specs = [load_device_calibration(file).spec for file in files]
    return tuple(sorted((s for s in specs if s is not None), key=lambda spec: spec.name))


def device_calibration_path(folder: Path, device: str) -> Path:
    """Where the calibration of a device lies in a folder of the user's own."""
    return folder / DEVICE_FOLDER / f"{device}.json"


def load_calibration(file: Path) -> Calibration:
    """A whole calibration.

    Raises:
        CalibrationError: the file cannot be read or understood.
    """
    return _load(file, Calibration)


def load_device_calibration(file: Path) -> DeviceCalibration:
    """The calibration of one device, as `bsprof calibrate` writes it.

    Raises:
        CalibrationError: the file cannot be read or understood.
    """
    return _load(file, DeviceCalibration)


def save_calibration(file: Path, calibration: Calibration | DeviceCalibration) -> None:
    """Write a calibration: sorted keys, so that equal ones are equal files.

    Raises:
        OutputError: the file cannot be written.
    """
    atomic_write(file, dump_calibration(calibration).encode())


def dump_calibration(calibration: Calibration | DeviceCalibration) -> str:
    """The text of a calibration's file."""
    document = {"schema": CALIBRATION_SCHEMA, **to_json(calibration)}
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def with_device(calibration: Calibration, device: DeviceCalibration) -> Calibration:
    """A calibration with that of one device added, or put in the place of what it had."""
    return dataclasses.replace(calibration, devices={**calibration.devices, device.device: device})


def _state(own: Path | None) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of the user's files, so that new ones are seen."""
    if own is None:
        return ()
    files = [own / ROOFLINE_FILE, *sorted((own / DEVICE_FOLDER).glob("*.json"))]
    return tuple(
        (str(file), file.stat().st_size, file.stat().st_mtime_ns)
        for file in files
        if file.is_file()
    )


@functools.lru_cache(maxsize=4)
def _calibration(own: Path | None, state: tuple[tuple[str, int, int], ...]) -> Calibration:
    if own is not None and not own.is_dir():
        raise CalibrationError(
            f"cannot read the folder {own}",
            found=f"no folder of that name, given by {CALIBRATION_VARIABLE}",
            next_step="name an existing folder, or unset the variable",
        )
    names = [Path(name) for name, _size, _time in state]
    whole = [name for name in names if name.name == ROOFLINE_FILE and name.parent == own]
    found = load_calibration(whole[0] if whole else data_folder("calibration_data") / ROOFLINE_FILE)
    for name in names:
        if name not in whole:
            found = with_device(found, load_device_calibration(name))
    return found


def _load(file: Path, record: type[T]) -> T:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationError(
            f"cannot read {file}", found=str(error), next_step="check that file"
        ) from error
    except ValueError as error:
        raise CalibrationError(
            f"cannot read {file}", found=f"no JSON: {error}", next_step="calibrate anew"
        ) from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != CALIBRATION_SCHEMA:
        raise CalibrationError(
            f"cannot read {file}",
            found=f"format {schema!r}; this version reads {CALIBRATION_SCHEMA}",
            next_step="calibrate anew",
        )
    fields: dict[str, Any] = document
    if record is not Calibration:
        fields = {key: value for key, value in document.items() if key != "schema"}
    try:
        return from_json(record, fields)
    except ProfileFormatError as error:
        raise CalibrationError(
            f"cannot read {file}", found=str(error), next_step="calibrate anew"
        ) from error
