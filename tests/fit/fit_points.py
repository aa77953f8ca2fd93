"""Points for tests of fits, from plain numbers."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from bsprof.fit.samples import median_quantity
from bsprof.records import MemoryPeaks, Phase, Point, PointStatus, Quantity, Timing

MIB = 2**20


def memory_point(
    size: int,
    used: Mapping[Phase, float] | float,
    *,
    allocated: Mapping[Phase, float] | None = None,
    alloc_retries: int | None = None,
    status: PointStatus = PointStatus.OK,
) -> Point:
    """A point with byte peaks given in MiB; a single number has no phases."""
    by_phase = used if isinstance(used, Mapping) else {}
    peak = max(by_phase.values()) if isinstance(used, Mapping) else used
    return Point(
        micro_batch_size=size,
        status=status,
        alloc_retries=alloc_retries,
        device_used_bytes=Quantity.exact(round(peak * MIB)),
        memory=MemoryPeaks(
            resident_bytes=0,
            allocated_by_phase_bytes={p: round(v * MIB) for p, v in (allocated or {}).items()},
            device_used_by_phase_bytes={p: round(v * MIB) for p, v in by_phase.items()},
        ),
    )


def timed_point(size: int, samples: Sequence[float], *, alloc_retries: int | None = None) -> Point:
    """A point with raw micro-step samples in seconds."""
    return Point(
        micro_batch_size=size,
        status=PointStatus.OK,
        alloc_retries=alloc_retries,
        micro_step_s=median_quantity(samples),
        timing=Timing(micro_step_samples_s=tuple(samples)),
    )


def public_rows(name: str) -> Iterator[dict[str, str]]:
    """Rows of a public measurement file; skips the test where the data folder is absent."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    path = Path(os.environ.get("BSPROF_SHARED_DATA", beside)) / name
    if not path.is_file():
        pytest.skip(f"public measurements not here ({name}); set BSPROF_SHARED_DATA")
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)
