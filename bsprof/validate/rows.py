"""Files of published measurements, read row by row."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bsprof.errors import UsageError

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Row:
    """One published row: text by column, with typed access.

    Attributes:
        name: File and line, for tables.
        cells: As published.
    """

    name: str
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        """A cell without spaces around it; empty where the file has no such column."""
        return (self.cells.get(column) or "").strip()

    def number(self, column: str) -> float | None:
        """A cell as a number; None where it holds none."""
        try:
            return float(self.text(column))
        except ValueError:
            return None

    def count(self, column: str) -> int | None:
        """A cell as a whole number."""
        number = self.number(column)
        return None if number is None else round(number)

    @property
    def peak_bytes(self) -> float | None:
        """The published peak."""
        gib = self.number("peak_mem_gib")
        return None if gib is None else gib * GIB

    def has(self, column: str, *words: str) -> bool:
        """Whether a cell has one of these words in it, whatever their case."""
        cell = self.text(column).lower()
        return any(word in cell for word in words)

    def note(self, key: str) -> str:
        """The value of `key=value` in the notes; empty where there is none."""
        for part in self.text("notes").split(";"):
            name, found, value = part.strip().partition("=")
            if found and name == key:
                return value.strip()
        return ""


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of one file, in order.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, cells in enumerate(csv.DictReader(file), start=2):
                yield Row(f"{path.name}:{number}", cells)
    except OSError as error:
        raise UsageError(
            f"cannot read the measurements in {path}",
            found=error.strerror or type(error).__name__,
            next_step="name a folder that has the files, with --measurements",
        ) from error
