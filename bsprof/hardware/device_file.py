"""One file of the device catalogue: read, checked key by key, and turned into records.

The format is described in `calibration_data/README.md`. A number without a source is refused.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bsprof.errors import CalibrationError
from bsprof.records import DeviceSpec, Quantity

KINDS = ("cuda", "rocm")
COMPUTE_TYPES = ("fp32", "tf32", "bf16", "fp16", "fp8")
LINKS = ("pcie", "nvlink", "nvlink_c2c", "infinity_fabric")

_MIB, _GIB = 2**20, 2**30


class _Unreadable(Exception):
    """A value that cannot be read; the message says what is wanted instead."""


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Unreadable("give a number")
    if not math.isfinite(value) or value <= 0:
        raise _Unreadable("give a number above zero")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise _Unreadable("give a whole number above zero")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Unreadable("give a text that is not empty")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _Unreadable("give a list of texts")
    return tuple(map(_text, value))


def _kind(value: Any) -> str:
    if value not in KINDS:
        raise _Unreadable(f"use {' or '.join(KINDS)}")
    return str(value)


def _version(value: Any) -> tuple[int, int]:
    pair = isinstance(value, list) and len(value) == 2
    if not pair or not all(type(part) is int and part >= 0 for part in value):
        raise _Unreadable("give major and minor, like [8, 9]")
    return value[0], value[1]


def _scaled(unit: float) -> Callable[[Any], float]:
    return lambda value: _number(value) * unit


def _bytes(unit: int) -> Callable[[Any], int]:
    return lambda value: round(_number(value) * unit)


def _quantity(unit: int) -> Callable[[Any], Quantity]:
    def read(value: Any) -> Quantity:
        if not isinstance(value, dict) or set(value) != {"value", "low", "high"}:
            raise _Unreadable("give { value = ..., low = ..., high = ... }")
        number, low, high = (_number(value[key]) * unit for key in ("value", "low", "high"))
        if not low <= number <= high:
            raise _Unreadable("let low be at most value, and value at most high")
        return Quantity(value=round(number), low=round(low), high=round(high))

    return read


def _rates(unit: float, names: tuple[str, ...]) -> Callable[[Any], Mapping[str, float]]:
    def read(value: Any) -> Mapping[str, float]:
        if not isinstance(value, dict) or not value or not set(value) <= set(names):
            raise _Unreadable(f"give a table with some of {', '.join(names)}")
        return {name: _number(value[name]) * unit for name in names if name in value}

    return read


_WORDS: Mapping[str, Callable[[Any], Any]] = {
    "title": _text,
    "kind": _kind,
    "aliases": _texts,
    "architecture": _text,
    "notes": _texts,
}
"""Keys that need no source, each the field of the same name."""

_NUMBERS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "compute_capability": ("compute_capability", _version),
    "compute_units": ("compute_units", _whole),
    "memory_gib": ("nominal_memory_bytes", _bytes(_GIB)),
    "capacity_gib": ("capacity_bytes", _quantity(_GIB)),
    "peak_tflops": ("flops_per_s", _rates(1e12, COMPUTE_TYPES)),
    "bandwidth_gb_per_s": ("bandwidth_bytes_per_s", _scaled(1e9)),
    "l2_mib": ("l2_bytes", _bytes(_MIB)),
    "boost_mhz": ("boost_clock_hz", _scaled(1e6)),
    "power_w": ("power_w", _number),
    "links_gb_per_s": ("links_bytes_per_s", _rates(1e9, LINKS)),
    "context_mib": ("context_bytes", _quantity(_MIB)),
}
"""Keys that need a source: the field that each fills, and how its value is read."""

_REQUIRED = (
    "title",
    "architecture",
    "compute_units",
    "memory_gib",
    "capacity_gib",
    "peak_tflops",
    "bandwidth_gb_per_s",
)


def read_device_file(file: Path) -> tuple[DeviceSpec, ...]:
    """The devices that a file describes, in its order.

    Raises:
        CalibrationError: it cannot be read, or a key is unknown, missing, of the wrong kind or
            without a source; the message names file and key.
    """
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise _error(file, str(error), "check that file") from error
    except tomllib.TOMLDecodeError as error:
        raise _error(file, str(error), "write it as TOML") from error
    _refuse_unknown(file, "", document, ("sources", "devices"))
    shared = _sources(file, "sources", document.get("sources", {}))
    tables = document.get("devices")
    if not isinstance(tables, dict) or not tables:
        raise _error(file, "devices: no device", "add a table like [devices.rtx-4090]")
    return tuple(_device(file, name, table, shared) for name, table in tables.items())


def _device(file: Path, name: str, table: Any, shared: Mapping[str, str]) -> DeviceSpec:
    where = f"devices.{name}"
    if not isinstance(table, dict):
        raise _error(file, f"{where}: {table!r}", "make it a table")
    _refuse_unknown(file, where, table, (*_WORDS, *_NUMBERS, "sources"))
    for key in _REQUIRED:
        if key not in table:
            raise _error(file, f"{where}: no {key}", "add it")
    own = _sources(file, f"{where}.sources", table.get("sources", {}))
    values: dict[str, Any] = {"name": name}
    for key, read in _WORDS.items():
        if key in table:
            values[key] = _value(file, f"{where}.{key}", table[key], read)
    sources = {}
    for key, (field, read) in _NUMBERS.items():
        if key in table:
            values[field] = _value(file, f"{where}.{key}", table[key], read)
            sources[field] = own.get(key) or shared.get(key, "")
            if not sources[field]:
                raise _error(
                    file,
                    f"{where}.{key}: no source",
                    f"add sources.{key}: where the number comes from",
                )
        elif key in own:
            raise _error(file, f"{where}.sources.{key}: no such number", f"add {key}, or drop it")
    spec = DeviceSpec(**values, sources=sources)
    if spec.capacity_bytes.high > spec.nominal_memory_bytes:
        raise _error(
            file,
            f"{where}.capacity_gib: more than memory_gib",
            "give what the driver hands out, which is less than the box says",
        )
    return spec


def _sources(file: Path, where: str, table: Any) -> Mapping[str, str]:
    if not isinstance(table, dict):
        raise _error(file, f"{where}: {table!r}", "make it a table")
    _refuse_unknown(file, where, table, tuple(_NUMBERS))
    return {key: _value(file, f"{where}.{key}", value, _text) for key, value in table.items()}


def _value(file: Path, where: str, value: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(value)
    except _Unreadable as problem:
        raise _error(file, f"{where}: {value!r}", str(problem)) from None


def _refuse_unknown(file: Path, where: str, table: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            place = f"{where}.{key}" if where else key
            raise _error(file, f"{place}: an unknown key", f"known: {', '.join(known)}")


def _error(file: Path, found: str, next_step: str) -> CalibrationError:
    return CalibrationError(f"cannot read {file}", found=found, next_step=next_step)
