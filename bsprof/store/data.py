"""The data that travels with bsprof: reference profiles and calibration files.

A checkout's own folder wins over the copy that is packed into the wheel, so that editing a file
in the repository has its effect at once.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_CHECKOUT = _PACKAGE.parent


def data_folder(name: str, *, package: Path = _PACKAGE, checkout: Path = _CHECKOUT) -> Path:
    """The folder `name` (`profiles/reference`, `calibration_data`); it may not exist.

    Args:
        name: Path of the folder in the repository.
        package: The installed package's folder.
        checkout: The folder that holds the package; a checkout if it has a `pyproject.toml`.
    """
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    return package / "_data" / name
