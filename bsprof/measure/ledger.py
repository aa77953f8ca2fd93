"""Everything a sweep knows so far, and the profile that it makes (pure).

Points are derived anew whenever a count, a peak or a further sample arrives, so the saved profile
never mixes old and new knowledge.
"""

from __future__ import annotations

import statistics
from contextlib import suppress
from dataclasses import dataclass, field, replace

from bsprof.errors import FitError
from bsprof.measure.crew import Built, Trouble
from bsprof.measure.derive import derive_point, repaced_point, with_race
from bsprof.measure.heap import HeapModel, fit_heap, largest_by_heap
from bsprof.measure.raw import Counts, RawPoint
from bsprof.records import (
    Category,
    DevicePeaks,
    LoaderPoint,
    Note,
    Origin,
    Point,
    PointStatus,
    Profile,
    Quantity,
    SweepPlan,
    Timing,
    WorkloadFacts,
    WorkloadKey,
    WorkloadSpec,
)
from bsprof.units import format_share

MFU_FLAG = 1.0
"""Above this share of its own device's measured peak, either the peak or the count is wrong."""

LASTING = frozenset({PointStatus.OOM, PointStatus.FAILED, PointStatus.NOT_MEMORY_LIMIT})
"""Outcomes that would come again in a resumed sweep; a kill, crash or time-out may be chance."""
LOADER_NOTES = ("loader-failed", "loader-short-epoch", "loader-cut-short")
"""Codes of notes on the measurement of a loader."""
UNSTABLE = 0.10
"""Half width of a time's interval, over the time, from which a note says so (heuristic: several
times what a quiet machine shows)."""


@dataclass(slots=True)
class Ledger:
    """The state of one sweep.

    Attributes:
        stored: Points of an earlier, interrupted sweep, kept as they were.
        raw: What workers measured in this one, by size.
        failed: Sizes that did not run, by size.
        loader: What was measured of the user's loader.
    """

    spec: WorkloadSpec
    plan: SweepPlan
    created_at: str
    built: Built | None = None
    key: WorkloadKey | None = None
    peaks: DevicePeaks | None = None
    stored: dict[int, Point] = field(default_factory=dict)
    raw: dict[int, RawPoint] = field(default_factory=dict)
    failed: dict[int, Point] = field(default_factory=dict)
    counts: list[Counts] = field(default_factory=list)
    confirmed: set[int] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)
    largest: Quantity | None = None
    loader: tuple[LoaderPoint, ...] = ()
    complete: bool = False
    earlier_s: float = 0.0
    _heap_sizes: tuple[int, ...] = ()
    _heap: HeapModel | None = None
    _modelled_for: tuple[HeapModel | None, tuple[int, ...]] = (None, ())
    _modelled: dict[int, Quantity] = field(default_factory=dict)

    def add_raw(self, raw: RawPoint) -> None:
        """A size that ran; what an earlier try at it said is forgotten."""
        self.raw[raw.micro_batch_size] = raw
        self.failed.pop(raw.micro_batch_size, None)
        for note in raw.notes:
            self.note(note.code, note.message, note.hint, note.micro_batch_size)

    def add_trouble(self, micro_batch_size: int, trouble: Trouble) -> None:
        """A size that did not run."""
        self.raw.pop(micro_batch_size, None)
        self.stored.pop(micro_batch_size, None)
        self.failed[micro_batch_size] = Point(
            micro_batch_size=micro_batch_size, status=trouble.status, failure=trouble.failure
        )

    def add_skipped(self, micro_batch_size: int, point: Point) -> None:
        """A size that was asked for and not run."""
        self.failed[micro_batch_size] = point

    def add_race(self, timings: dict[int, Timing]) -> None:
        """Paired samples of several sizes, in rounds."""
        for size, timing in timings.items():
            if size in self.raw:
                self.raw[size] = with_race(self.raw[size], timing)

    def note(self, code: str, message: str, hint: str = "", size: int | None = None) -> None:
        """A remark, once per code and size."""
        note = Note(code=code, message=message, hint=hint, micro_batch_size=size)
        if not any(n.code == code and n.micro_batch_size == size for n in self.notes):
            self.notes.append(note)

    def points(self) -> tuple[Point, ...]:
        """All points, smallest micro-batch first."""
        used = self._modelled_bytes()
        pace = self._usual_pace()
        derived = {
            size: derive_point(
                raw,
                self.spec,
                self.counts,
                self.peaks,
                confirmed=size in self.confirmed,
                used=used.get(size),
                usual_pace_s=pace,
            )
            for size, raw in self.raw.items()
        }
        stored = {
            size: replace(repaced_point(p, pace), confirmed=p.confirmed or size in self.confirmed)
            for size, p in self.stored.items()
        }
        merged = {**stored, **derived, **self.failed}
        return tuple(merged[size] for size in sorted(merged))

    def has(self, micro_batch_size: int) -> bool:
        """Whether that size has an outcome."""
        return any(micro_batch_size in d for d in (self.raw, self.stored, self.failed))

    def failed_for_memory(self) -> list[Point]:
        """Points that needed more memory than there is."""
        return [p for p in self.failed.values() if p.status.is_too_big]

    def ran_any(self) -> bool:
        """Whether any size ran."""
        return bool(self.raw or self.stored)

    def _usual_pace(self) -> float | None:
        """Median seconds of the pacer over the whole sweep; None where nothing was paced."""
        timings = [r.timing for r in self.raw.values()]
        timings += [p.timing for p in self.stored.values() if p.timing is not None]
        paces = [s for t in timings for s in t.pace_samples_s]
        return statistics.median(paces) if paces else None

    def _modelled_bytes(self) -> dict[int, Quantity]:
        """Memory of sizes whose own data segment is a larger size's, by the heap model."""
        sizes = tuple(sorted(b for b, r in self.raw.items() if r.inherits_heap))
        model = self.heap_model() if sizes else None
        if (model, sizes) != self._modelled_for:
            self._modelled_for, self._modelled = (model, sizes), {}
            if model is not None:
                with suppress(FitError):
                    for b, used in model.used_bytes(sizes).items():
                        width = used * model.half_width(b)
                        self._modelled[b] = Quantity.ordered(used, used - width, used + width)
        return self._modelled

    def heap_model(self) -> HeapModel | None:
        """What the C heap needs at any size; None where that is not known."""
        own = {b: r for b, r in self.raw.items() if r.heap is not None and not r.inherits_heap}
        sizes = tuple(sorted(own))
        if sizes != self._heap_sizes:
            self._heap_sizes, self._heap = sizes, None
            used = {b: max(r.memory.device_used_by_phase_bytes.values()) for b, r in own.items()}
            with suppress(FitError):
                self._heap = fit_heap(
                    [r.heap for r in own.values() if r.heap is not None],
                    used,
                    held_bytes=min(map(_held_bytes, own.values()), default=0.0),
                )
        return self._heap

    def largest_by_heap(self) -> Quantity | None:
        """The largest size by replaying recorded heaps; None where that cannot be done."""
        model = self.heap_model()
        if model is None or self.built is None:
            return None
        with suppress(FitError):
            return largest_by_heap(model, self.built.device.usable_bytes, model.largest_measured)
        return None

    def facts(self) -> WorkloadFacts:
        """Facts of the workload with the operators that nothing is known about."""
        assert self.built is not None
        uncounted = {name for c in self.counts for name in c.uncounted_operators}
        return replace(self.built.facts, uncounted_operators=tuple(sorted(uncounted)))

    def profile(self, duration_s: float) -> Profile:
        """The profile as of now."""
        assert self.built is not None
        points = self.points()
        self._flag(points)
        return Profile(
            origin=Origin.MEASURED,
            created_at=self.created_at,
            workload=self.spec,
            key=self.key,
            facts=self.facts(),
            device=self.built.device,
            peaks=self.peaks,
            environment=self.built.environment,
            plan=self.plan,
            complete=self.complete,
            notes=tuple(self.notes),
            points=points,
            max_micro_batch_size=self.largest,
            loader=self.loader,
            duration_s=self.earlier_s + duration_s,
        )

    def resume(self, old: Profile, built: Built) -> None:
        """Take over the points of an interrupted sweep.

        What may end otherwise this time is tried again: chance deaths always, sizes that did not
        fit when more memory is usable now.
        """
        self.created_at = old.created_at
        self.earlier_s = old.duration_s
        self.peaks = old.peaks
        if self.plan.loader in (None, old.plan.loader):
            self.plan = replace(self.plan, loader=old.plan.loader)
            self.loader = old.loader
        retried = {"time-budget", *(() if self.loader else LOADER_NOTES)}
        self.notes = [n for n in old.notes if n.code not in retried]
        grown = built.device.usable_bytes > old.device.usable_bytes
        if built.device.usable_bytes == old.device.usable_bytes:
            self.largest = old.max_micro_batch_size
        for point in old.points:
            if point.status is PointStatus.OK:
                self.stored[point.micro_batch_size] = point
            elif point.status in LASTING and not (grown and point.status is PointStatus.OOM):
                self.failed[point.micro_batch_size] = point

    def _flag(self, points: tuple[Point, ...]) -> None:
        for point in points:
            if point.mfu is not None and point.mfu.low > MFU_FLAG:
                self.note(
                    "mfu-above-one",
                    f"MFU {point.mfu.value:.2f} at micro-batch {point.micro_batch_size} is above 1",
                    "the device's probe ran too slow, or an operator is counted too high",
                    point.micro_batch_size,
                )
        unstable = [
            p.micro_batch_size
            for p in points
            if p.micro_step_s is not None and p.micro_step_s.relative_width / 2 > UNSTABLE
        ]
        self.notes = [n for n in self.notes if n.code != "unstable-timing"]
        if unstable:
            self.note(
                "unstable-timing",
                "times are known only to within more than "
                f"{format_share(UNSTABLE)} at micro-batch {', '.join(map(str, unstable))}",
                "something else is using this machine; sweep again when it is quiet",
            )
        uncounted = self.facts().uncounted_operators
        if uncounted:
            self.note(
                "uncounted-operators",
                "FLOPs of these operators are not known and count as zero: " + ", ".join(uncounted),
            )


def _held_bytes(raw: RawPoint) -> float:
    """What the process held before this size, without the weights."""
    held = raw.memory.baseline_device_used_bytes or 0
    return max(0.0, held - raw.resident_by_category_bytes.get(Category.WEIGHTS, 0))
