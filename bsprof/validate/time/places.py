"""Where the files of a folder of measurements lie."""

from __future__ import annotations

from pathlib import Path

FOLDERS = ("", "end_to_end", "kernels")
"""In which a file is looked for."""


def place_of(folder: Path, file: str) -> Path | None:
    """Where a file lies in a folder of measurements; None where it does not."""
    for name in FOLDERS:
        path = folder / name / file
        if path.is_file():
            return path
    return None
