"""A sweep's outcomes in words: one line for a point, one error for what ends the sweep (pure)."""

from __future__ import annotations

from bsprof.errors import BsprofError, MeasurementError, WorkloadError
from bsprof.measure.crew import Trouble
from bsprof.records import Failure, Point, PointStatus, WorkloadSpec
from bsprof.units import format_bytes, format_count, format_seconds
from bsprof.workloads.faults import advice


def point_line(point: Point) -> str:
    """One finished point in one line, for people."""
    size = f"micro-batch {point.micro_batch_size}"
    if point.prediction is not None and point.status is PointStatus.OK:
        return f"{size}: {_predicted(point)}"
    if point.micro_step_s is None or point.samples_per_s is None:
        reason = point.failure.reason if point.failure is not None else ""
        return f"{size}: {point.status}" + (f" ({reason})" if reason else "")
    used = format_bytes(point.device_used_bytes.value) if point.device_used_bytes else "unknown"
    return (
        f"{size}: {format_seconds(point.micro_step_s.value)} a micro-step, "
        f"{format_count(point.samples_per_s.value)} samples/s, {used} used"
    )


def _predicted(point: Point) -> str:
    verdict = "fits" if not point.alloc_retries else "fits only after a cache flush"
    if point.device_used_bytes is None:
        return verdict
    used = point.device_used_bytes
    spread = f"{format_bytes(used.low)} to {format_bytes(used.high)}"
    verdict = f"{verdict}, {format_bytes(used.value)} used ({spread})"
    if point.micro_step_s is None:
        return verdict
    step = point.micro_step_s
    spread = f"{format_seconds(step.low)} to {format_seconds(step.high)}"
    return f"{verdict}, {format_seconds(step.value)} a micro-step ({spread})"


def build_error(spec: WorkloadSpec, trouble: Trouble) -> BsprofError:
    """Why not even building worked, as an error to raise."""
    if trouble.error is not None:
        return trouble.error
    if trouble.failure.phase == "start":
        return MeasurementError(
            "cannot start a worker",
            found=_told(trouble.failure),
            next_step="see `bsprof doctor`",
        )
    if trouble.status.is_too_big:
        return MeasurementError(
            f"{spec.model} does not fit: building it ran out of memory",
            found=trouble.failure.reason,
            next_step="use a device with more memory, a smaller model, or bf16 weights",
        )
    return WorkloadError(
        f"cannot build {spec.model}",
        found=_told(trouble.failure),
        next_step=advice("\n".join(trouble.failure.tail))
        or "mend the workload's code and sweep again",
    )


def step_error(spec: WorkloadSpec, size: int, failure: Failure) -> BsprofError:
    """What the workload raised at the only size it was tried at, as an error to raise."""
    return WorkloadError(
        f"{spec.model} failed at micro-batch {size}",
        found=_told(failure),
        next_step=_next_step(failure),
    )


def _told(failure: Failure) -> str:
    """A failure's reason and place, with the last lines of the script below."""
    place = f" at {failure.location}" if failure.location else ""
    return "\n".join([f"{failure.reason}{place}", *failure.tail])


def _next_step(failure: Failure) -> str:
    """What to do about a user's code that failed."""
    return advice("\n".join(failure.tail)) or "mend the workload's code and sweep again"
