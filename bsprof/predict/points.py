"""Points of a profile from predictions of memory (pure)."""

from __future__ import annotations

from bsprof.predict.allocator import Verdict
from bsprof.predict.memory import MemoryPrediction
from bsprof.predict.module_groups import grouped
from bsprof.records import (
    Failure,
    MemoryPeaks,
    Point,
    PointPrediction,
    PointStatus,
    Timeline,
    ranked_shares,
)
from bsprof.units import format_bytes, format_share

TOP_MODULES = 8
"""Modules at the peak that a point keeps; what no module made is told by category."""
UPDATES = 2
"""Whole updates behind the peaks, as traced."""


def point_of(
    prediction: MemoryPrediction,
    usable_bytes: int,
    timeline: Timeline | None = None,
    *,
    reserves: bool = True,
) -> Point:
    """The point of a predicted size; its times are unknown.

    A size that does not fit keeps its bytes: what it would need.

    Args:
        prediction: Of the size.
        usable_bytes: What the process may use.
        timeline: To keep along.
        reserves: Whether the device has an allocator that keeps what is freed.
    """
    fits = prediction.verdict is not Verdict.OUT_OF_MEMORY
    return Point(
        micro_batch_size=prediction.micro_batch_size,
        status=PointStatus.OK if fits else PointStatus.OOM,
        peak_allocated_bytes=prediction.allocated_bytes,
        peak_reserved_bytes=prediction.reserved_bytes if reserves else None,
        device_used_bytes=prediction.device_used_bytes,
        first_step_peak_reserved_bytes=prediction.first_step_reserved_bytes if reserves else None,
        alloc_retries=prediction.alloc_retries if fits else None,
        peak_phase=prediction.peak_phase,
        peak_by_category_bytes=dict(prediction.by_category_bytes),
        memory=MemoryPeaks(
            resident_bytes=prediction.resident_bytes,
            allocated_by_phase_bytes=dict(prediction.allocated_by_phase_bytes),
            device_used_by_phase_bytes=dict(prediction.device_used_by_phase_bytes),
            first_step_allocated_bytes=prediction.first_step_allocated_bytes,
            updates=UPDATES,
        ),
        failure=None if fits else _failure(prediction, usable_bytes),
        prediction=PointPrediction(
            top_modules=dict([m for m in prediction.top_modules if m[0]][:TOP_MODULES]),
            module_groups=dict(grouped(prediction.top_modules)[:TOP_MODULES]),
            terms=prediction.terms,
            timeline=timeline,
        ),
    )


def _failure(prediction: MemoryPrediction, usable_bytes: int) -> Failure:
    needed = format_bytes(prediction.device_used_bytes.value)
    owners = ranked_shares(prediction.by_category_bytes)[:1]
    held = "".join(f"{category.words} {format_share(share)}" for category, share in owners)
    return Failure(
        reason=f"would need {needed} where {format_bytes(usable_bytes)} are usable; of its peak "
        f"{held}",
        phase=prediction.refused_in.value if prediction.refused_in else "build",
        requested_bytes=prediction.requested_bytes,
    )
