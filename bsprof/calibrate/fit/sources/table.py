"""Lines of a CSV file as dictionaries, and an even sample of many rows."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from bsprof.errors import CalibrationError

T = TypeVar("T")

Line = dict[str, str]


def lines_of(file: Path, columns: Sequence[str]) -> list[Line]:
    """Lines of a file that has at least these columns.

    Raises:
        CalibrationError: the file cannot be read, or lacks a column.
    """
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise CalibrationError(
                    f"cannot read {file}",
                    found=f"no column {missing[0]!r}",
                    next_step="name a folder of kernel measurements",
                )
            return list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CalibrationError(
            f"cannot read {file}",
            found=str(error),
            next_step="name a folder of kernel measurements",
        ) from error


def whole(text: str) -> int:
    """A whole number, also where the file writes it with an exponent."""
    return round(float(text))


def thinned(rows: Sequence[T], most: int) -> list[T]:
    """At most so many rows, evenly spaced through their order."""
    if len(rows) <= most:
        return list(rows)
    return [rows[i * len(rows) // most] for i in range(most)]
