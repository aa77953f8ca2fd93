"""The plain roofline of a data sheet, which a good model must beat, and that times one constant."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from bsprof.accounting.work import Work
from bsprof.predict.cost import Part, StepCosts
from bsprof.records import DeviceSpec, Precision

_INSTEAD = {"bf16": ("fp16", "fp32"), "fp16": ("fp32",), "tf32": ("fp32",), "fp64": ("fp32",)}
"""Whose peak counts where a device has none of a type."""

HALF, TF32, FP32 = "half", "tf32", "fp32"
_KINDS = {
    Precision.FP32: FP32,
    Precision.FP32_STRICT: FP32,
    Precision.TF32: TF32,
}


def kind_of(precision: Precision) -> str:
    """Which constant a precision takes."""
    return _KINDS.get(precision, HALF)


def sheet_seconds(work: Work, device: DeviceSpec) -> float:
    """Of one work: the slower of its FLOPs and its bytes, at the rates of the data sheet."""
    peaks = device.flops_per_s
    names = (work.compute, *_INSTEAD.get(work.compute, ()))
    peak = next((peaks[name] for name in names if name in peaks), peaks["fp32"])
    return max(work.flops / peak, work.bytes / device.bandwidth_bytes_per_s)


def sheet_of_part(part: Part, device: DeviceSpec) -> float:
    """Of all works of a part."""
    return sum(count * sheet_seconds(work, device) for work, count in part)


def sheet_of_update(
    costs: StepCosts, device: DeviceSpec, *, accumulation_steps: int = 1, world_size: int = 1
) -> float:
    """Of an update; what ranks exchange is left out, and the optimizer step is shared out.

    Args:
        costs: Of one device alone.
        device: Whose data sheet.
        accumulation_steps: Micro-steps of the update.
        world_size: Ranks that share the optimizer step.
    """
    micro = sheet_of_part(costs.forward, device) + sheet_of_part(costs.backward, device)
    adding = (accumulation_steps - 1) * sheet_of_part(costs.accumulation, device)
    return accumulation_steps * micro + adding + sheet_of_part(costs.optimizer, device) / world_size


def constant(ratios: Iterable[float]) -> float | None:
    """The median of measured times over the data sheet's; None of none."""
    found: Sequence[float] = list(ratios)
    return statistics.median(found) if found else None
