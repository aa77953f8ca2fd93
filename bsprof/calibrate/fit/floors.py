"""Launch floors of devices from `launch_floor.csv`."""

from __future__ import annotations

from pathlib import Path

from bsprof.calibrate.fit.names import CATALOGUE_NAMES
from bsprof.calibrate.fit.sources.table import lines_of

_BACK_TO_BACK = "gpu-benches stream launch"


def launch_floors(folder: Path) -> dict[str, float]:
    """Device seconds per kernel, launched one after the other into a stream, by catalogue name."""
    found = {}
    for line in lines_of(folder / "launch_floor.csv", ("gpu", "source", "p50_of_small_us")):
        device = CATALOGUE_NAMES.get(line["gpu"])
        if device is not None and line["source"] == _BACK_TO_BACK:
            found[device] = float(line["p50_of_small_us"]) * 1e-6
    return found
