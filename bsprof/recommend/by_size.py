"""Several profiles size by size, and what was predicted against what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bsprof.recommend.curve import MEMORY_FIELDS
from bsprof.records import Origin, Point, Profile, Quantity, WorkloadSpec

TIME_FIELD = "micro_step_s"
FIELD_NAMES = {
    TIME_FIELD: "the time of a micro-step",
    "device_used_bytes": "memory used",
    "peak_reserved_bytes": "reserved memory",
    "peak_allocated_bytes": "allocated memory",
}
"""Those fields in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePoints:
    """One micro-batch size in all profiles.

    Attributes:
        micro_batch_size: The size.
        points: Its point in each profile; None where it was not tried.
    """

    micro_batch_size: int
    points: tuple[Point | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstMeasured:
    """How a prediction stands against a measurement of the same workload.

    Attributes:
        predicted, measured: Indices of the two profiles.
        field: What is compared: the best of `MEMORY_FIELDS` that both have, or `TIME_FIELD`.
        sizes: Sizes that both have, ascending.
        ratios: Predicted over measured, one per size.
        inside: How many measured values lie in the predicted 90 % interval.
        same_device: Whether both are of a device of that name.
    """

    predicted: int
    measured: int
    field: str
    sizes: tuple[int, ...]
    ratios: tuple[float, ...]
    inside: int
    same_device: bool

    @property
    def median_error(self) -> float:
        """Median of predicted over measured, less 1."""
        return statistics.median(self.ratios) - 1


def points_by_size(profiles: Sequence[Profile]) -> tuple[SizePoints, ...]:
    """Every size with its points, ascending; empty where all profiles were measured."""
    if all(p.origin is Origin.MEASURED for p in profiles):
        return ()
    sizes = sorted({point.micro_batch_size for p in profiles for point in p.points})
    return tuple(
        SizePoints(micro_batch_size=size, points=tuple(p.point(size) for p in profiles))
        for size in sizes
    )


def against_measured(profiles: Sequence[Profile]) -> tuple[AgainstMeasured, ...]:
    """Each predicted profile against the first measured one of its workload and kind of device.

    By memory, and on a device of one name by time as well.
    """
    return tuple(_pairs(profiles))


def _pairs(profiles: Sequence[Profile]) -> Iterator[AgainstMeasured]:
    for index, profile in enumerate(profiles):
        if profile.origin is not Origin.PREDICTED:
            continue
        for other_index, other in enumerate(profiles):
            if other.origin is Origin.MEASURED and _alike(profile, other):
                groups: list[Sequence[str]] = [MEMORY_FIELDS]
                if profile.device.name == other.device.name:
                    groups.append((TIME_FIELD,))
                pairs = [_against(g, index, profile, other_index, other) for g in groups]
                found = [pair for pair in pairs if pair is not None]
                if found:
                    yield from found
                    break


def _alike(a: Profile, b: Profile) -> bool:
    same = _without_seed(a.workload) == _without_seed(b.workload) and a.ranks == b.ranks
    return same and a.parallel == b.parallel and a.device.kind == b.device.kind


def _without_seed(spec: WorkloadSpec) -> WorkloadSpec:
    return replace(spec, seed=0, trust_remote_code=False)


def _against(
    fields: Sequence[str], index: int, predicted: Profile, other_index: int, measured: Profile
) -> AgainstMeasured | None:
    for field in fields:
        pairs = dict(_values(field, predicted, measured))
        if pairs:
            return AgainstMeasured(
                predicted=index,
                measured=other_index,
                field=field,
                sizes=tuple(pairs),
                ratios=tuple(p.value / m.value for p, m in pairs.values()),
                inside=sum(p.low <= m.value <= p.high for p, m in pairs.values()),
                same_device=predicted.device.name == measured.device.name,
            )
    return None


def _values(
    field: str, predicted: Profile, measured: Profile
) -> Iterator[tuple[int, tuple[Quantity, Quantity]]]:
    """Sizes at which both ran, with the two values of a field."""
    for point in predicted.ok_points():
        other = measured.point(point.micro_batch_size)
        value = getattr(point, field)
        real = None if other is None or not other.is_ok else getattr(other, field)
        if value is not None and real is not None and real.value > 0:
            yield point.micro_batch_size, (value, real)
