"""How well a calibration predicts rows, with and without the devices they were measured on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from bsprof.calibrate.fit.rows import KernelRow
from bsprof.predict.roofline import Roofline
from bsprof.predict.roofline.groups import law_name
from bsprof.records import DeviceSpec
from bsprof.records.calibration import Calibration

Group = tuple[str, str, str]
"""Device, law and source."""


def log_errors(
    rows: Sequence[KernelRow],
    calibration: Calibration,
    specs: Mapping[str, DeviceSpec],
    floors_s: Mapping[tuple[str, str], float],
) -> dict[Group, list[float]]:
    """log(predicted / measured) of rows by device, law and source.

    Args:
        rows: Measured.
        calibration: That predicts.
        specs: Devices by name.
        floors_s: Fixed costs of sources, by law and source, which are added to predictions.
    """
    rooflines: dict[str, Roofline] = {}
    found: dict[Group, list[float]] = {}
    for row in rows:
        roofline = rooflines.get(row.device)
        if roofline is None:
            roofline = Roofline.of(specs[row.device], calibration, isolated=True)
            rooflines[row.device] = roofline
        law = law_name(row.work)
        seconds = roofline.seconds(row.work) + floors_s.get((law, row.source), 0.0)
        error = math.log(seconds / row.seconds)
        found.setdefault((row.device, law, row.source), []).append(error)
    return found


def root_mean_square(values: Sequence[float], *, prior: float, weight: float = 2.0) -> float:
    """Root mean square of a few values, drawn to a prior that counts like `weight` of them."""
    total = weight * prior**2 + sum(value * value for value in values)
    return math.sqrt(total / (weight + len(values)))


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies, interpolated."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def median_bias(errors: Sequence[float]) -> float:
    """Median of log(measured / predicted)."""
    return -statistics.median(errors)
