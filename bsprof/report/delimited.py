"""All points as comma-separated values: plain numbers in base units, full precision."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from bsprof.records import Category, Point, Quantity
from bsprof.report.data import ProfileView, ReportData
from bsprof.report.time_classes import GROUPS, device_seconds, portions
from bsprof.report.words import failure_text

_QUANTITIES = (
    "micro_step_s",
    "micro_step_sync_s",
    "optimizer_step_s",
    "samples_per_s",
    "device_used_bytes",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "first_step_peak_reserved_bytes",
    "flops",
    "bytes_moved",
    "arithmetic_intensity",
    "mfu",
    "hfu",
    "compile_s",
    "energy_j",
)
_HEADER = (
    "profile",
    "origin",
    "model",
    "precision",
    "mode",
    "device",
    "micro_batch_size",
    "status",
    "recommended",
    "confirmed",
    "alloc_retries",
    "regime",
    "peak_phase",
    *(f"{name}{end}" for name in _QUANTITIES for end in ("", "_low", "_high")),
    *(f"peak_{category}_bytes" for category in Category),
    "device_s",
    "host_s",
    *(f"{name.replace(' ', '_')}_s" for name in GROUPS),
    "reason",
)


def csv_text(data: ReportData) -> str:
    """One line per point of every profile; unknown numbers are empty cells."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_HEADER)
    for view in data.views:
        for point in view.profile.points:
            writer.writerow(_cells(view, point, chosen=data.chosen_size(view)))
    return buffer.getvalue()


def _cells(view: ProfileView, point: Point, chosen: int | None) -> Iterator[object]:
    profile = view.profile
    yield view.name
    yield profile.origin
    yield profile.workload.model
    yield profile.workload.precision
    yield profile.workload.mode
    yield profile.device.name
    yield point.micro_batch_size
    yield point.status
    yield _flag(point.micro_batch_size == chosen)
    yield _flag(point.confirmed)
    yield point.alloc_retries
    yield point.regime
    yield point.peak_phase
    for name in _QUANTITIES:
        quantity: Quantity | None = getattr(point, name)
        if quantity is None:
            yield from ("", "", "")
        else:
            yield from map(_number, (quantity.value, quantity.low, quantity.high))
    for category in Category:
        yield point.peak_by_category_bytes.get(category, "")
    yield from _seconds(point)
    yield failure_text(point)


def _seconds(point: Point) -> Iterator[object]:
    """Of the device and the host, and of each group of work; empty cells where not predicted."""
    parts = {part.name: part.seconds for part in portions(point)}
    host = None if point.prediction is None else point.prediction.host_s
    yield device_seconds(point) if parts else ""
    yield "" if host is None else host
    for name in GROUPS:
        yield parts.get(name, "")


def _flag(value: bool) -> int:
    return int(value)


def _number(value: float) -> int | float:
    """Whole numbers without a decimal point, as byte counts and FLOPs are."""
    return int(value) if float(value).is_integer() else value
