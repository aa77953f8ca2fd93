"""What a profile's usable points say about any size between them: time, memory, safety.

The seconds of a plan are a sum of medians that were measured, so a plan's time is kept as
coefficients of those medians (a `Cost`). Two plans that share a measurement share its error, and
it cancels in their difference. Predicted times are summed the same way, and compared world by
world.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from bsprof.fit.samples import (
    PAIRED_FROM,
    median_quantity,
    paired_difference,
    spread_of_outcomes,
)
from bsprof.records import Origin, PieceRun, Point, Profile, Quantity, Regime, Timing

# Allocators round up, so memory between two sizes is not exactly below the chord of a convex
# curve. Heuristic; never more than what the larger of the two neighbours needed.
ROUNDING_SHARE = 0.02

MEMORY_FIELDS = ("device_used_bytes", "peak_reserved_bytes", "peak_allocated_bytes")
"""What counts against the limit, best first: the later ones leave something out."""


class Part(StrEnum):
    """Whose seconds a coefficient multiplies."""

    MICRO_STEP = "micro_step"
    SYNC_STEP = "sync_step"
    OPTIMIZER_STEP = "optimizer_step"
    BEND = "bend"  # a size between two measured ones, less the straight line between them


_TIMED_PARTS = (Part.MICRO_STEP, Part.SYNC_STEP)  # compared sample by sample where that is possible

Term = tuple[Part, int]
Cost = Mapping[Term, float]


def usable_points(profile: Profile) -> tuple[Point, ...]:
    """Points that may be recommended, smallest first: they fit, ran what they say, and have a time.

    A measured point that ran no step, or another size than it says, is no evidence of anything.
    Where a profile was not measured and no point has a time, those that have memory are usable.
    """
    measured = profile.origin is Origin.MEASURED
    if not measured and all(p.micro_step_s is None for p in profile.ok_points()):
        known = [p for p in profile.ok_points() if _has_memory(p)]
        return tuple(sorted(known, key=lambda p: p.micro_batch_size))
    return tuple(
        point
        for point in sorted(profile.ok_points(), key=lambda p: p.micro_batch_size)
        if point.micro_step_s is not None
        and point.micro_step_s.value > 0
        and not (measured and point.micro_steps_run < 1)
        and point.observed_micro_batch_size in (None, point.micro_batch_size)
    )


def _has_memory(point: Point) -> bool:
    return any(getattr(point, field) is not None for field in MEMORY_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The usable points of a profile, and what lies between them.

    Attributes:
        points: Usable points by micro-batch size, ascending.
        refused: Sizes with any other outcome; never run, and nothing is interpolated across one.
        medians: Seconds of each part, from raw samples where they were kept.
        samples: Those raw samples, in seconds.
        rounds: Samples of micro-steps taken in turn with other sizes: entry i of all of them
            belongs to one round.
        worlds: Seconds of predicted parts in each world; empty where times were measured.
        memory_field: Which of `MEMORY_FIELDS` all points have; None when they share none.
        extra_bytes: Memory that every size needs on top of what was measured.
        is_computed: Whether memory was predicted: then it bends upwards only, but for rounding,
            and what lies between two sizes is bounded below by the lines through their neighbours.
    """

    points: Mapping[int, Point]
    refused: frozenset[int]
    medians: Mapping[Term, Quantity]
    samples: Mapping[Term, Sequence[float]]
    rounds: Mapping[Term, Sequence[float]]
    memory_field: str | None
    worlds: Mapping[Term, Sequence[float]] = field(default_factory=dict)
    extra_bytes: int = 0
    is_computed: bool = False

    @classmethod
    def of(cls, profile: Profile, *, extra_bytes: int = 0) -> Curve:
        """The curve of a profile; `extra_bytes` is memory to add to every size."""
        points = {point.micro_batch_size: point for point in usable_points(profile)}
        samples: dict[Term, Sequence[float]] = {}
        medians: dict[Term, Quantity] = {}
        for size, point in points.items():
            for part, quantity, raw in _parts(point):
                if raw and min(raw) > 0:
                    samples[part, size] = raw
                    medians[part, size] = median_quantity(raw)
                elif quantity is not None:
                    medians[part, size] = quantity
        fields = (
            field
            for field in MEMORY_FIELDS
            if all(getattr(p, field) is not None for p in points.values())
        )
        return cls(
            points=points,
            refused=frozenset(p.micro_batch_size for p in profile.points) - points.keys(),
            medians=medians,
            samples=samples,
            rounds={
                (Part.MICRO_STEP, size): point.timing.race_samples_s
                for size, point in points.items()
                if point.timing is not None and point.timing.race_samples_s
            },
            memory_field=next(fields, None) if points else None,
            worlds=_worlds(points.values(), medians),
            extra_bytes=extra_bytes,
            is_computed=profile.origin is Origin.PREDICTED,
        )

    @property
    def is_timed(self) -> bool:
        """Whether times are known; else only memory is."""
        return bool(self.medians)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Usable measured sizes, ascending."""
        return tuple(self.points)

    def neighbours(self, size: int) -> tuple[int | None, int | None]:
        """The nearest usable sizes at most and at least `size`; None beyond the ends."""
        sizes = self.sizes
        index = bisect_left(sizes, size)
        above = sizes[index] if index < len(sizes) else None
        below = size if above == size else (sizes[index - 1] if index else None)
        return below, above

    def is_safe(self, size: int) -> bool:
        """Whether `size` was measured, or lies below a usable size with no failure around it.

        Fit is not assumed to be monotone: around a size that failed nothing is promised.
        """
        below, above = self.neighbours(size)
        if size < 1 or above is None:
            return False
        if below == above:
            return True
        return not any((below or 0) < failed < above for failed in self.refused)

    def is_between(self, size: int) -> bool:
        """Whether `size` was not measured but lies between two usable sizes."""
        below, above = self.neighbours(size)
        return below is not None and above is not None and below != above

    def micro_step(self, size: int) -> Cost:
        """Seconds of a micro-step of `size` samples, at most the largest usable size.

        Between two measured sizes: the straight line, plus a bend of unknown sign. Below the
        smallest: the line through the first two, kept between a step that costs the same and
        one that costs in proportion.
        """
        below, above = self.neighbours(size)
        assert above is not None, "nothing is extrapolated beyond the largest usable size"
        if below == above:
            return {(Part.MICRO_STEP, size): 1.0}
        weights = self._weights(size, below, above)
        return {(Part.MICRO_STEP, s): w for s, w in weights.items()} | {(Part.BEND, size): 1.0}

    def optimizer_step(self, size: int) -> Cost:
        """Seconds of the optimizer step after micro-steps of `size` samples; empty without one."""
        below, above = self.neighbours(size)
        assert above is not None, "nothing is extrapolated beyond the largest usable size"
        if below == above or below is None:
            weights = {above: 1.0}
        else:
            weights = self._weights(size, below, above)
        terms = {(Part.OPTIMIZER_STEP, s): w for s, w in weights.items()}
        return terms if terms.keys() <= self.medians.keys() else {}

    def synchronisation(self, size: int) -> Cost:
        """Seconds that a synchronising micro-step takes longer; empty where it was not measured."""
        nearest = [s for s in self.neighbours(size) if s is not None][-1]
        sync = (Part.SYNC_STEP, nearest)
        return {sync: 1.0, (Part.MICRO_STEP, nearest): -1.0} if sync in self.medians else {}

    def update(self, runs: Iterable[PieceRun], *, with_sync: bool) -> Cost:
        """Seconds of an update that runs these pieces on one rank, then the optimizer step."""
        counts: Counter[int] = Counter()
        for run in runs:
            counts[run.size] += run.count
        largest = max(counts)
        costs = [(self.micro_step(size), count) for size, count in counts.items()]
        costs.append((self.optimizer_step(largest), 1))
        if with_sync:
            costs.append((self.synchronisation(largest), 1))
        total: dict[Term, float] = {}
        for cost, count in costs:
            for term, weight in cost.items():
                total[term] = total.get(term, 0.0) + weight * count
        return total

    def seconds(self, cost: Cost) -> Quantity:
        """The value of a cost, its independent errors added as squares.

        What was predicted errs alike at all sizes: there the errors are those of its worlds.
        """
        value = sum(weight * self._median(term).value for term, weight in cost.items())
        down, up = self._errors(_bends(cost) if self.worlds else cost)
        if self.worlds:
            shown = spread_of_outcomes(value, self.outcomes(cost))
            down, up = math.hypot(down, value - shown.low), math.hypot(up, shown.high - value)
        return Quantity(value=value, low=max(value - down, 0.0), high=value + up)

    def excess(self, a: Cost, b: Cost, scale: float = 1.0) -> Quantity:
        """How much longer a takes than b, as a share of b, with the paired 90 % interval.

        Where all measurements behind both costs were taken in rounds, or have equally many raw
        samples, update times are formed sample by sample and compared in pairs, so that what
        slowed a whole round cancels.
        Otherwise the errors of the medians are added as squares. Either way a measurement that
        both share cancels. Predicted updates are compared world by world.

        Args:
            scale: Multiplies a: the ratio of samples per update when the two differ.
        """
        a = {term: weight * scale for term, weight in a.items()}
        time_a, time_b = (self.seconds(cost).value for cost in (a, b))
        ratio = time_a / time_b
        difference = {t: (a.get(t, 0.0) - ratio * b.get(t, 0.0)) / time_b for t in {**a, **b}}
        paired = self._paired(a, b)
        if self.worlds:
            rows = zip(self.outcomes(a), self.outcomes(b), strict=True)
            paired = spread_of_outcomes(ratio - 1, [x / y - 1 for x, y in rows])
        if paired is None:
            down, up = self._errors(difference)
            return Quantity(value=ratio - 1, low=ratio - 1 - down, high=ratio - 1 + up)
        rest = {t: w for t, w in difference.items() if t[0] not in _TIMED_PARTS}
        rest_down, rest_up = self._errors(_bends(rest) if self.worlds else rest)
        low = paired.value - math.hypot(paired.value - paired.low, rest_down)
        high = paired.value + math.hypot(paired.high - paired.value, rest_up)
        return Quantity(value=ratio - 1, low=min(low, ratio - 1), high=max(high, ratio - 1))

    def used_bytes(self, size: int) -> Quantity | None:
        """Memory at `size` that counts against the limit, in bytes; None when unknown.

        Peaks are a maximum of lines, hence convex: between two sizes the chord is an upper bound
        but for rounding. Below the smallest size: what the smallest needed.
        """
        below, above = self.neighbours(size)
        if self.memory_field is None or above is None:
            return None
        upper = self._measured_bytes(above)
        lower = upper if below is None else self._measured_bytes(below)
        if below is None or below == above:
            found = upper
        else:
            share = (size - below) / (above - below)
            value = lower.value + share * (upper.value - lower.value)
            high = (lower.high + share * (upper.high - lower.high)) * (1 + ROUNDING_SHARE)
            low = min(lower.low, upper.low)
            if self.is_computed:
                low = max(low, self._least_between(size, below, above))
            found = Quantity.ordered(value, low, min(high, max(lower.high, upper.high)))
        return Quantity(
            value=found.value + self.extra_bytes,
            low=found.low,  # the extra may turn out to be nothing
            high=found.high + self.extra_bytes,
        )

    def _least_between(self, size: int, below: int, above: int) -> float:
        """Lower end of memory between two sizes: the lines beside them, less rounding."""
        sizes = self.sizes
        at = sizes.index(below)
        ends = []
        for first, second in ((at - 1, at), (at + 1, at + 2)):
            if first >= 0 and second < len(sizes):
                a, b = sizes[first], sizes[second]
                low_a, low_b = (self._measured_bytes(s).low for s in (a, b))
                ends.append(low_a + (low_b - low_a) * (size - a) / (b - a))
        chord = [self._measured_bytes(s).low for s in (below, above)]
        most = max(ends, default=min(chord)) * (1 - ROUNDING_SHARE)
        return min(most, chord[0] + (chord[1] - chord[0]) * (size - below) / (above - below))

    def ceiling_bytes(self, size: int) -> float:
        """Upper end of memory over all sizes up to `size`: never falls as the size grows."""
        below = [s for s in self.sizes if s < size]
        used = [self.used_bytes(s) for s in (*below, size)]
        return max((q.high for q in used if q is not None), default=0.0)

    def largest_within(self, limit_bytes: float) -> int | None:
        """The largest safe size whose memory, at its upper end, stays within a limit."""
        fitting = [s for s in self.sizes if self.ceiling_bytes(s) <= limit_bytes]
        if not fitting:
            return None
        low, high = fitting[-1], fitting[-1]
        larger = [s for s in self.sizes if s > low]
        if larger and self.is_safe(larger[0] - 1):
            high = larger[0] - 1
        while low < high:  # what all sizes up to one need never falls as it grows
            middle = (low + high + 1) // 2
            if self.ceiling_bytes(middle) <= limit_bytes:
                low = middle
            else:
                high = middle - 1
        return low

    def regime(self, size: int) -> Regime:
        """What binds at `size`; unknown where the neighbours disagree."""
        found = {self.points[s].regime for s in self.neighbours(size) if s is not None}
        return found.pop() if len(found) == 1 else Regime.UNKNOWN

    def _measured_bytes(self, size: int) -> Quantity:
        quantity = getattr(self.points[size], str(self.memory_field))
        assert isinstance(quantity, Quantity)
        return quantity

    def _weights(self, size: int, below: int | None, above: int) -> dict[int, float]:
        if below is not None:
            share = (size - below) / (above - below)
            return {below: 1 - share, above: share}
        first = self.medians[Part.MICRO_STEP, above].value
        proportional = size / above
        if len(self.sizes) == 1:
            return {above: 1.0}
        second_size = self.sizes[1]
        second = self.medians[Part.MICRO_STEP, second_size].value
        share = (size - above) / (second_size - above)  # below zero
        estimate = first + share * (second - first)
        if estimate >= first:
            return {above: 1.0}
        if estimate <= first * proportional:
            return {above: proportional}
        return {above: 1 - share, second_size: share}

    def _median(self, term: Term) -> Quantity:
        part, size = term
        return self._bend(size) if part is Part.BEND else self.medians[term]

    def _bend(self, size: int) -> Quantity:
        """How far the time at an unmeasured size may be off the straight line, in seconds.

        If a larger batch takes no less time and gives no less throughput, the time lies between
        max(t_below, t_above * size / above) and min(t_above, t_below * size / below); where the
        points contradict that, between whatever these four numbers span.
        """
        below, above = self.neighbours(size)
        assert above is not None
        weights = self._weights(size, below, above)
        line = sum(w * self.medians[Part.MICRO_STEP, s].value for s, w in weights.items())
        upper = self.medians[Part.MICRO_STEP, above].value
        if below is None:
            ends = [upper * size / above, upper]
        else:
            lower = self.medians[Part.MICRO_STEP, below].value
            ends = [max(lower, upper * size / above), min(upper, lower * size / below)]
        return Quantity(
            value=0.0,
            low=min(0.0, *(e - line for e in ends)),
            high=max(0.0, *(e - line for e in ends)),
        )

    def _errors(self, cost: Cost) -> tuple[float, float]:
        """Distances from a cost's value to the low and to the high end, in its own unit."""
        down, up = [], []
        for term, weight in cost.items():
            quantity = self._median(term)
            ends = [
                weight * (quantity.low - quantity.value),
                weight * (quantity.high - quantity.value),
            ]
            down.append(min(ends))
            up.append(max(ends))
        return math.hypot(*down), math.hypot(*up)

    def _paired(self, a: Cost, b: Cost) -> Quantity | None:
        """The paired difference of sample-wise update times; None where samples do not pair up."""
        timed = {t for t in {**a, **b} if t[0] in _TIMED_PARTS}
        for samples in (self.rounds, self.samples):
            counts = {len(samples.get(t, ())) for t in timed}
            count = max(counts)
            if len(counts) != 1 or count < PAIRED_FROM:
                continue
            rows = [self._sample_wise(cost, samples, count) for cost in (a, b)]
            if min(map(min, rows)) > 0:  # else a sync or extrapolated part outweighs the rest
                return paired_difference(*rows)
        return None

    def outcomes(self, cost: Cost) -> list[float]:
        """Predicted seconds of a cost in each world; bends have none."""
        rows = [(w, self.worlds[t]) for t, w in cost.items() if t[0] is not Part.BEND]
        return [sum(w * row[i] for w, row in rows) for i in range(len(rows[0][1]))]

    def _sample_wise(
        self, cost: Cost, samples: Mapping[Term, Sequence[float]], count: int
    ) -> list[float]:
        rows = [(w, samples[t]) for t, w in cost.items() if t[0] in _TIMED_PARTS]
        fixed = sum(w * self._median(t).value for t, w in cost.items() if t[0] not in _TIMED_PARTS)
        return [fixed + sum(w * row[i] for w, row in rows) for i in range(count)]


def _parts(point: Point) -> list[tuple[Part, Quantity | None, Sequence[float]]]:
    timing = point.timing or Timing(micro_step_samples_s=())
    return [
        (Part.MICRO_STEP, point.micro_step_s, timing.micro_step_samples_s),
        (Part.SYNC_STEP, point.micro_step_sync_s, timing.micro_step_sync_samples_s),
        (Part.OPTIMIZER_STEP, point.optimizer_step_s, timing.optimizer_step_samples_s),
    ]


def _bends(cost: Cost) -> dict[Term, float]:
    return {t: w for t, w in cost.items() if t[0] is Part.BEND}


def _worlds(
    points: Iterable[Point], medians: Mapping[Term, Quantity]
) -> dict[Term, Sequence[float]]:
    """Predicted seconds of each part in each world; nothing unless all have the same worlds."""
    found: dict[Term, Sequence[float]] = {}
    for point in points:
        worlds = None if point.prediction is None else point.prediction.worlds
        if worlds is None:
            return {}
        size = point.micro_batch_size
        found[Part.MICRO_STEP, size] = worlds.micro_step_s
        found[Part.SYNC_STEP, size] = worlds.micro_step_sync_s
        found[Part.OPTIMIZER_STEP, size] = worlds.optimizer_step_s
    found = {term: row for term, row in found.items() if row}
    alike = len({len(row) for row in found.values()}) == 1
    return found if alike and found.keys() == medians.keys() else {}
