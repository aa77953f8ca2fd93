"""Numbers of a calibration with four digits, so that equal fits are equal files."""

from __future__ import annotations

from typing import TypeVar

from bsprof.records.codec import from_json, to_json

T = TypeVar("T")


def rounded(record: T, digits: int = 4) -> T:
    """The record with every number that has a fraction rounded to so many significant digits."""
    return from_json(type(record), _rounded(to_json(record), digits))


def _rounded(value: object, digits: int) -> object:
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: _rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item, digits) for item in value]
    return value
