"""Points from raw measurements: rates, intensity, MFU, regime and categories (pure).

FLOPs, bytes moved and operators of a micro-step are affine in the micro-batch size, so two
counted sizes give every other; a size that was counted itself keeps its own count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bsprof.fit.samples import median_quantity
from bsprof.measure.pace import paced_samples
from bsprof.measure.raw import Counts, EnergyWindow, RawPoint
from bsprof.records import (
    Category,
    DevicePeaks,
    MemoryPeaks,
    Phase,
    Point,
    PointStatus,
    Precision,
    Quantity,
    Regime,
    Timing,
    WorkloadSpec,
    per_second,
)

COMPUTE_TYPE = {
    Precision.FP32: "fp32",
    Precision.FP32_STRICT: "fp32",
    Precision.TF32: "tf32",
    Precision.AMP_BF16: "bf16",
    Precision.BF16: "bf16",
    Precision.AMP_FP16: "fp16",
    Precision.FP16: "fp16",
}
"""Which ceiling a precision is held against. `fp32` is held against strict fp32 although its
convolutions may use TF32: an MFU above 1 is then flagged, not hidden."""

ENERGY_READING_S = 0.1
"""How old a reading of a device's energy counter may be: it moves every 20 to 100 ms (PETSc manual,
PetscLogGpuEnergyMeter)."""


@dataclass(frozen=True, slots=True)
class _Affine:
    """A count at any size: exact where counted, else the line through the two nearest counts."""

    known: tuple[tuple[int, float], ...]

    def at(self, size: int) -> float | None:
        by_size = dict(self.known)
        if size in by_size:
            return by_size[size]
        if len(self.known) < 2:
            return None
        (b0, y0), (b1, y1) = self.known[:2]
        return max(0.0, y0 + (y1 - y0) * (size - b0) / (b1 - b0))


def derive_point(
    raw: RawPoint,
    spec: WorkloadSpec,
    counts: Sequence[Counts],
    peaks: DevicePeaks | None,
    *,
    confirmed: bool = False,
    used: Quantity | None = None,
    usual_pace_s: float | None = None,
) -> Point:
    """The point of a size that ran.

    Args:
        raw: What the worker found.
        spec: What ran.
        counts: Everything counted so far on this workload, any sizes.
        peaks: Ceilings of the device; without them MFU is None and the regime `unknown`.
        confirmed: Whether the size also ran in a fresh process.
        used: What counts against the limit, where it is not what was measured: a process that
            ran a larger size before still holds that one's heap.
        usual_pace_s: The pace of the whole sweep, to which this size's samples are brought.
    """
    size = raw.micro_batch_size
    timing = paced_timing(raw.timing, usual_pace_s)
    micro = _median(timing.micro_step_samples_s)
    optimizer = _median(timing.optimizer_step_samples_s)
    total = micro if optimizer is None or micro is None else _sum(micro, optimizer)
    memory = raw.memory if used is None else _at_most(raw.memory, used)
    measured = max(memory.device_used_by_phase_bytes.values())
    # By live bytes: what an allocator or heap holds never falls from one phase to the next.
    phase = max(memory.allocated_by_phase_bytes.items(), key=lambda item: item[1])[0]
    flops = _count(counts, "model_flops", size)
    hardware = _count(counts, "hardware_flops", size)
    moved = _count(counts, "bytes_moved", size)
    kernels = _count(counts, "kernels", size)
    ceiling = peaks.flops_per_s.get(COMPUTE_TYPE[spec.precision]) if peaks else None
    return Point(
        micro_batch_size=size,
        status=PointStatus.OK,
        micro_step_s=micro,
        optimizer_step_s=optimizer,
        peak_allocated_bytes=Quantity.exact(max(raw.memory.allocated_by_phase_bytes.values())),
        peak_reserved_bytes=_exact(raw.reserved_bytes),
        device_used_bytes=used or Quantity.exact(measured),
        first_step_peak_reserved_bytes=_exact(raw.first_step_reserved_bytes),
        alloc_retries=raw.alloc_retries,
        flops=_exact(flops),
        bytes_moved=_exact(moved),
        kernels=_exact(kernels),
        arithmetic_intensity=_exact(flops / moved if flops is not None and moved else None),
        samples_per_s=None if total is None else per_second(size, total),
        mfu=_utilization(flops, micro, ceiling),
        hfu=_utilization(hardware, micro, ceiling),
        # Compiled code runs fewer operators and moves fewer bytes than were counted.
        regime=Regime.UNKNOWN
        if spec.compile
        else _regime(hardware, moved, kernels, ceiling, peaks),
        peak_phase=phase,
        peak_by_category_bytes=_categories(raw, counts, phase),
        compile_s=_exact(raw.compile_s),
        energy_j=None if raw.energy is None else _energy(raw.energy),
        confirmed=confirmed,
        observed_micro_batch_size=raw.observed_micro_batch_size,
        micro_steps_run=raw.micro_steps_run,
        timing=timing,
        memory=memory,
    )


def repaced_point(point: Point, usual_pace_s: float | None) -> Point:
    """A stored point whose times are brought to the pace of the sweep that goes on from it."""
    if point.timing is None or point.micro_step_s is None or not point.timing.pace_samples_s:
        return point
    timing = paced_timing(point.timing, usual_pace_s)
    micro = median_quantity(timing.micro_step_samples_s)
    total = micro if point.optimizer_step_s is None else _sum(micro, point.optimizer_step_s)
    faster = point.micro_step_s.value / micro.value
    return replace(
        point,
        timing=timing,
        micro_step_s=micro,
        samples_per_s=per_second(point.micro_batch_size, total),
        mfu=point.mfu and point.mfu.scaled(faster),
        hfu=point.hfu and point.hfu.scaled(faster),
    )


def _at_most(memory: MemoryPeaks, used: Quantity) -> MemoryPeaks:
    """Peaks by phase, none above what the size needs: the phase of the allocated peak keeps it."""
    top = max(memory.allocated_by_phase_bytes.values())
    return replace(
        memory,
        device_used_by_phase_bytes={
            phase: min(measured, int(used.value) - (top - memory.allocated_by_phase_bytes[phase]))
            for phase, measured in memory.device_used_by_phase_bytes.items()
        },
    )


def with_race(raw: RawPoint, race: Timing) -> RawPoint:
    """The raw point with the samples of a race beside its own, which also stand apart as paired."""
    own = raw.timing
    return replace(
        raw,
        timing=replace(
            own,
            micro_step_samples_s=(*own.micro_step_samples_s, *race.micro_step_samples_s),
            optimizer_step_samples_s=(
                *own.optimizer_step_samples_s,
                *race.optimizer_step_samples_s,
            ),
            enqueue_samples_s=(*own.enqueue_samples_s, *race.enqueue_samples_s),
            race_samples_s=race.micro_step_samples_s,
            pace_samples_s=(*own.pace_samples_s, *race.pace_samples_s),
        ),
    )


def paced_timing(timing: Timing, usual_pace_s: float | None) -> Timing:
    """The timing with the machine's drift taken out of its micro-steps.

    Args:
        timing: As a worker sent it, or as it stands in a profile.
        usual_pace_s: The pace to bring all samples to; None leaves them as clocked.
    """
    clocked = timing.clocked_samples_s or timing.micro_step_samples_s
    if usual_pace_s is None or not timing.pace_samples_s:
        return timing
    samples = tuple(paced_samples(clocked, timing.pace_samples_s, usual_pace_s))
    raced = len(timing.race_samples_s)
    return replace(
        timing,
        micro_step_samples_s=samples,
        clocked_samples_s=clocked,
        race_samples_s=samples[len(samples) - raced :],
    )


def _median(samples: Sequence[float]) -> Quantity | None:
    return median_quantity(samples) if samples else None


def _sum(a: Quantity, b: Quantity) -> Quantity:
    """a + b with the independent errors added in squares on either side."""
    low = ((a.value - a.low) ** 2 + (b.value - b.low) ** 2) ** 0.5
    high = ((a.high - a.value) ** 2 + (b.high - b.value) ** 2) ** 0.5
    value = a.value + b.value
    return Quantity.ordered(value, value - low, value + high)


def _energy(window: EnergyWindow) -> Quantity:
    """Joules of one update; either end of the window may be off by the age of a reading."""
    value = window.joules / window.updates
    margin = value * ENERGY_READING_S / window.seconds
    return Quantity.ordered(value, value - margin, value + margin)


def _exact(value: float | None) -> Quantity | None:
    return None if value is None else Quantity.exact(value)


def _count(counts: Sequence[Counts], name: str, size: int) -> float | None:
    known = sorted((c.micro_batch_size, float(getattr(c, name))) for c in counts)
    return _Affine(tuple(known)).at(size)


def _utilization(
    flops: float | None, seconds: Quantity | None, ceiling: float | None
) -> Quantity | None:
    if flops is None or seconds is None or not ceiling:
        return None
    return per_second(flops / ceiling, seconds)


def _regime(
    flops: float | None,
    moved: float | None,
    kernels: float | None,
    ceiling: float | None,
    peaks: DevicePeaks | None,
) -> Regime:
    """The resource whose own lower bound on the micro-step is the longest (roofline)."""
    if peaks is None or not ceiling or flops is None or moved is None or kernels is None:
        return Regime.UNKNOWN
    bounds = {
        Regime.LAUNCH: kernels * peaks.launch_s,
        Regime.BANDWIDTH: moved / peaks.bandwidth_bytes_per_s,
        Regime.COMPUTE: flops / ceiling,
    }
    return max(bounds, key=bounds.__getitem__)


def _categories(raw: RawPoint, counts: Sequence[Counts], phase: Phase) -> dict[Category, int]:
    """Whose bytes the peak is: fixed parts read, activations counted, the rest temporaries.

    Empty where activations were not counted: half a split would mislead.
    """
    peak = raw.memory.allocated_by_phase_bytes[phase]
    resident = raw.resident_by_category_bytes
    parts = {
        Category.WEIGHTS: resident.get(Category.WEIGHTS, 0),
        Category.OPTIMIZER_STATE: resident.get(Category.OPTIMIZER_STATE, 0),
    }
    if phase is Phase.OPTIMIZER_STEP:
        parts |= {Category.GRADIENTS: raw.gradient_bytes, Category.ACTIVATIONS: 0}
    else:
        known = sorted(
            ((c.micro_batch_size, c.peak_by_category_bytes) for c in counts),
            key=lambda item: item[0],
        )
        for category in (Category.GRADIENTS, Category.ACTIVATIONS):
            line = _Affine(tuple((b, float(m.get(category, 0))) for b, m in known))
            at_size = line.at(raw.micro_batch_size)
            if at_size is None:
                return {}
            parts[category] = int(at_size)
        if phase is Phase.ACCUMULATION:
            parts[Category.GRADIENTS] = raw.gradient_bytes
    parts[Category.TEMPORARIES] = max(0, peak - sum(parts.values()))
    return parts
