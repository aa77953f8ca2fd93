"""All points of a workload on a device: the one record that everything downstream reads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bsprof.records.device import DevicePeaks, DeviceSnapshot, Environment
from bsprof.records.loader import LoaderPoint
from bsprof.records.point import Point, PointStatus
from bsprof.records.prediction import Prediction
from bsprof.records.quantity import Quantity
from bsprof.records.workload import WorkloadFacts, WorkloadKey, WorkloadSpec

SCHEMA_VERSION = 1
"""Version of the profile format. History: 1, the first (0.1.0)."""


class Origin(StrEnum):
    """Where a profile's numbers come from."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    IMPORTED = "imported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A warning or remark that travels with the numbers.

    Attributes:
        code: Stable identifier, kebab case (`unstable-timing`).
        message: One sentence.
        hint: What the reader can do; empty when nothing.
        micro_batch_size: The point it is about; None for the whole profile.
    """

    code: str
    message: str
    hint: str = ""
    micro_batch_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """What the sweep was asked to try.

    Attributes:
        micro_batch_sizes: Explicit sizes in the order given; empty for the adaptive schedule.
        max_micro_batch_size: No size above this is tried; None is no cap.
        memory_limit_bytes: The user's own limit; None uses what the device has free.
        time_budget_s: Soft limit on measuring; None is no limit.
        dataset_size: Samples in the data set: no micro-batch is larger; None when unknown.
        find_max: Bracket the largest size by running it, to within 5 %.
        relative_error: Wanted half width of a time interval over its median.
        loader: The user's own data loader, `file.py:function`, measured after the sizes; None
            measures none.
    """

    micro_batch_sizes: tuple[int, ...] = ()
    max_micro_batch_size: int | None = None
    memory_limit_bytes: int | None = None
    time_budget_s: float | None = None
    dataset_size: int | None = None
    find_max: bool = False
    relative_error: float = 0.02
    loader: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """All points of one workload on one device; points are sorted by micro-batch size.

    Attributes:
        created_at: UTC time the sweep began, ISO 8601.
        key: What was measured, as digests; None until the workload was built once.
        facts: What the workload turned out to be; None until it was built once.
        peaks: Ceilings of this device; None when they were never measured.
        ranks: Data-parallel ranks that measured together.
        parallel: `none`, `ddp`, `fsdp`, ...
        complete: Whether the sweep ended by itself.
        max_micro_batch_size: Largest size that fits, with its interval; None when unknown.
        loader: How fast the user's loader is; empty where none was measured.
        duration_s: Seconds spent measuring so far.
        prediction: How predicted numbers came about; None where they were measured.
    """

    schema: int = SCHEMA_VERSION
    origin: Origin
    created_at: str
    workload: WorkloadSpec
    key: WorkloadKey | None = None
    facts: WorkloadFacts | None = None
    device: DeviceSnapshot
    peaks: DevicePeaks | None = None
    environment: Environment
    ranks: int = 1
    parallel: str = "none"
    plan: SweepPlan = SweepPlan()
    complete: bool = False
    notes: tuple[Note, ...] = ()
    points: tuple[Point, ...] = ()
    max_micro_batch_size: Quantity | None = None
    loader: tuple[LoaderPoint, ...] = ()
    duration_s: float = 0.0
    prediction: Prediction | None = None

    def ok_points(self) -> tuple[Point, ...]:
        """Points that ran and may be recommended, smallest micro-batch first."""
        return tuple(p for p in self.points if p.is_ok)

    def smallest_too_big(self) -> Point | None:
        """The smallest size that needed more memory than there is, or None."""
        too_big = [p for p in self.points if p.status.is_too_big]
        return min(too_big, key=lambda p: p.micro_batch_size, default=None)

    def point(self, micro_batch_size: int) -> Point | None:
        """The point of that size, or None when it was not tried."""
        found = [p for p in self.points if p.micro_batch_size == micro_batch_size]
        return found[0] if found else None

    def raise_for_status(self) -> None:
        """Raise `MeasurementError` when not one point can be used."""
        from bsprof.errors import MeasurementError

        if self.ok_points():
            return
        attempts = [p for p in self.points if p.status is not PointStatus.SKIPPED]
        found = min(attempts or self.points, key=lambda p: p.micro_batch_size, default=None)
        model = self.workload.model
        if found is None:
            raise MeasurementError(f"the sweep of {model} has no point", next_step="run it again")
        size, reason = found.micro_batch_size, str(found.status)
        if found.failure:
            reason = found.failure.reason
        if not attempts:
            raise MeasurementError(
                f"no micro-batch size of {model} was tried",
                found=f"the smallest asked for, {size}, was skipped: {reason}",
                next_step="ask for other sizes, or allow more memory (--memory-limit) or time "
                "(--time-budget)",
            )
        if self.origin is Origin.PREDICTED:
            raise MeasurementError(
                f"no micro-batch size of {model} is predicted to fit on {self.device.name}",
                found=f"the smallest, {size}: {reason}",
                next_step="see what would make it fit, or use another device"
                if self.prediction is not None and self.prediction.changes
                else "use a smaller model, input or micro-batch, or another device",
            )
        raise MeasurementError(
            f"no micro-batch size of {model} gave a usable measurement",
            found=f"the smallest tried, {size}, ended {found.status}: {reason}",
            next_step="use a smaller model, input or micro-batch, or give it more memory "
            "(--memory-limit, another device)"
            if found.status.is_too_big or found.status is PointStatus.OK
            else "mend the cause, or try other sizes with --micro-batch-sizes",
        )
