"""What throughput does as the micro-batch grows, and where it levels off. Pure Python.

Everything is read from the measured points; no form is assumed over the whole range. Between two
measured sizes the time of a micro-step is taken as a straight line in the micro-batch size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bsprof.fit.samples import median_quantity, spread_of_outcomes
from bsprof.fit.worlds import micro_step_worlds
from bsprof.records.fit import Saturation
from bsprof.records.point import Point
from bsprof.records.quantity import Quantity

KNEE_SHARE = 0.95
_Z90 = 1.645
# Real steps scatter around a smooth curve by about half a percent even when timed exactly (wave
# quantisation, kernel choice); heuristic, keeps a very precise point from outweighing the rest.
_FLOOR_ERROR = 0.005
_UPPER_PART = 4.0  # the line that shows the asymptote goes through sizes above largest / this
_MIN_SPAN = 2.0  # a verdict needs sizes that differ by at least this factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Throughput at one size: samples per second and its relative standard error."""

    size: int
    seconds: float
    error: float

    @property
    def throughput(self) -> float:
        """Samples per second."""
        return self.size / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputShape:
    """Verdict on a throughput curve, with its knee (see `bsprof.records.TimeFit`)."""

    saturation: Saturation
    knee: Quantity | None


def knee_from_points(points: Sequence[Point], knee_share: float = KNEE_SHARE) -> Quantity | None:
    """Smallest micro-batch that reaches `knee_share` of the asymptotic throughput.

    In samples, not rounded, with its 90 % interval. None while throughput still rises at the
    largest measured size, and with too few points. Where the smallest measured size reaches the
    share already, the knee is at or below it: value and high are that size, low is 1.
    """
    return throughput_shape(points, knee_share=knee_share).knee


def throughput_shape(points: Sequence[Point], *, knee_share: float = KNEE_SHARE) -> ThroughputShape:
    """Whether throughput of the micro-step rises, levels off, is flat or falls; and its knee.

    Points that failed, or that fitted only after a cache flush, are left out.

    Raises:
        ValueError: a share outside 0 to 1.
    """
    if not 0 < knee_share < 1:
        raise ValueError(f"the knee share lies between 0 and 1, not {knee_share}")
    shape = _shape(_told_apart(points), knee_share)
    knees = [_knee_of_world(rates, knee_share) for rates in _world_rates(points)]
    if shape.knee is None or not knees:
        return shape
    spread = spread_of_outcomes(shape.knee.value, knees)
    widened = Quantity.ordered(
        shape.knee.value, min(shape.knee.low, spread.low), max(shape.knee.high, spread.high)
    )
    return ThroughputShape(saturation=shape.saturation, knee=widened)


def _knee_of_world(rates: Sequence[Rate], knee_share: float) -> float:
    """The knee in one world; the largest size where throughput still rises at it."""
    knee = _shape(rates, knee_share).knee
    return float(rates[-1].size) if knee is None else knee.value


def _shape(rates: Sequence[Rate], knee_share: float) -> ThroughputShape:
    if len(rates) < 3 or rates[-1].size < _MIN_SPAN * rates[0].size:
        return ThroughputShape(saturation=Saturation.UNKNOWN, knee=None)
    plateau = _plateau(rates)
    goal = knee_share * plateau.value
    at_or_below_first = Quantity(value=rates[0].size, low=1, high=rates[0].size)
    if _reaches(rates[0], goal):
        if not _reaches(rates[-1], goal):
            return ThroughputShape(saturation=Saturation.FALLING, knee=at_or_below_first)
        return ThroughputShape(saturation=Saturation.FLAT, knee=at_or_below_first)
    asymptote = _asymptote(rates)
    if asymptote is not None:
        size = rates[-1].size
        reached = size / (size + asymptote.half_size)
        error = size * asymptote.half_error / (size + asymptote.half_size) ** 2
        if reached + error < knee_share:
            return ThroughputShape(saturation=Saturation.RISING, knee=None)
        plateau = _asymptotic_plateau(asymptote, plateau)
    return ThroughputShape(saturation=Saturation.SATURATED, knee=_knee(rates, plateau, knee_share))


def _told_apart(points: Sequence[Point]) -> tuple[Rate, ...]:
    """Usable sizes, with the errors by which they differ from one another.

    Predicted times err alike at all sizes, so nearly all of their error cancels.
    """
    return tuple(
        replace(rate, error=_FLOOR_ERROR) if _is_predicted(rate.size, points) else rate
        for rate in measured_rates(points)
    )


def _is_predicted(size: int, points: Sequence[Point]) -> bool:
    return any(p.micro_batch_size == size and micro_step_worlds(p) for p in points)


def _world_rates(points: Sequence[Point]) -> list[tuple[Rate, ...]]:
    """The rates in each world; none unless all usable points have the same number of them."""
    usable = sorted((p for p in points if p.is_ok and p.micro_step_s), key=_size)
    counts = {len(micro_step_worlds(p)) for p in usable}
    if len(counts) != 1:
        return []
    return [
        tuple(
            Rate(size=p.micro_batch_size, seconds=micro_step_worlds(p)[i], error=_FLOOR_ERROR)
            for p in usable
        )
        for i in range(counts.pop())
    ]


def _size(point: Point) -> int:
    return point.micro_batch_size


def measured_rates(points: Sequence[Point]) -> tuple[Rate, ...]:
    """Usable sizes with their micro-step times, smallest first; the most precise per size."""
    best: dict[int, Rate] = {}
    for point in points:
        time = _micro_step(point)
        if not point.is_ok or time is None or time.value <= 0:
            continue
        error = math.hypot((time.high - time.low) / (2 * _Z90 * time.value), _FLOOR_ERROR)
        rate = Rate(size=point.micro_batch_size, seconds=time.value, error=error)
        known = best.get(rate.size)
        if known is None or rate.error < known.error:
            best[rate.size] = rate
    return tuple(best[size] for size in sorted(best))


def _micro_step(point: Point) -> Quantity | None:
    """Seconds of a micro-step: from the raw samples where there are any, else as recorded."""
    if point.timing is not None and point.timing.micro_step_samples_s:
        return median_quantity(point.timing.micro_step_samples_s)
    return point.micro_step_s


def _reaches(rate: Rate, goal: float) -> bool:
    return rate.throughput * (1 + _Z90 * rate.error) >= goal


def _plateau(rates: Sequence[Rate]) -> Quantity:
    """The level of the best sizes: mean of all that the best one is not told from.

    The single best measured value is high by the luck of its noise; the mean of the sizes that
    could equally be the best is not.
    """
    best = max(rates, key=lambda rate: rate.throughput)
    among = [
        rate
        for rate in rates
        if rate.throughput * (1 + _Z90 * math.hypot(rate.error, best.error)) >= best.throughput
    ]
    weights = [1 / rate.error**2 for rate in among]
    mean = sum(w * rate.throughput for w, rate in zip(weights, among, strict=True)) / sum(weights)
    margin = _Z90 * mean / math.sqrt(sum(weights))
    return Quantity(value=mean, low=mean - margin, high=mean + margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asymptote:
    """Of a line t = t0 + c*b: 1/c, its relative error, and t0/c (the size of half of 1/c)."""

    throughput: float
    error: float
    half_size: float
    half_error: float


def _asymptote(rates: Sequence[Rate]) -> _Asymptote | None:
    """The line through the upper part of the time curve, weighted by relative errors."""
    top = rates[-1].size
    upper = [rate for rate in rates if rate.size * _UPPER_PART >= top]
    if len(upper) < 3:
        upper = list(rates[-3:])
    weights = [1 / (rate.error * rate.seconds) ** 2 for rate in upper]
    w = sum(weights)
    x = sum(k * r.size for k, r in zip(weights, upper, strict=True)) / w
    t = sum(k * r.seconds for k, r in zip(weights, upper, strict=True)) / w
    spread = sum(k * (r.size - x) ** 2 for k, r in zip(weights, upper, strict=True))
    slope = sum(k * (r.size - x) * r.seconds for k, r in zip(weights, upper, strict=True)) / spread
    offset = t - slope * x
    if slope <= 0 or offset <= -slope * top:  # faster with size, or slower than any line
        return None
    misfit = sum(
        k * (r.seconds - offset - slope * r.size) ** 2 for k, r in zip(weights, upper, strict=True)
    )
    inflation = max(1.0, misfit / (len(upper) - 2))  # scatter beyond what the samples showed
    slope_variance = inflation / spread
    half = offset / slope
    # t0/c = t/c - x with t and c independent (x is the weighted centre).
    half_variance = inflation / w / slope**2 + (t / slope**2) ** 2 * slope_variance
    return _Asymptote(
        throughput=1 / slope,
        error=math.sqrt(slope_variance) / slope,
        half_size=half,
        half_error=math.sqrt(half_variance),
    )


def _asymptotic_plateau(asymptote: _Asymptote, measured: Quantity) -> Quantity:
    """The measured level, raised to the asymptote where the line shows one above it.

    The value moves only when t0 is told from zero, because the knee hangs on it steeply; the
    high end always allows for the asymptote.
    """
    shown = asymptote.half_size > _Z90 * asymptote.half_error
    value = max(asymptote.throughput, measured.value) if shown else measured.value
    high = asymptote.throughput * (1 + _Z90 * asymptote.error)
    return Quantity.ordered(value, measured.low, max(high, measured.high))


def _knee(rates: Sequence[Rate], plateau: Quantity, share: float) -> Quantity:
    local = _Z90 * math.sqrt(sum(rate.error**2 for rate in rates) / len(rates))
    down = math.hypot(local, (plateau.value - plateau.low) / plateau.value)
    up = math.hypot(local, (plateau.high - plateau.value) / plateau.value)
    goal = share * plateau.value
    return Quantity.ordered(
        _first_crossing(rates, goal),
        _first_crossing(rates, goal * (1 - down)),
        _first_crossing(rates, goal * (1 + up)),
    )


def _first_crossing(rates: Sequence[Rate], goal: float) -> float:
    """First size, in samples, at which throughput reaches `goal`; the best size if none does."""
    if rates[0].throughput >= goal:
        return float(rates[0].size)
    for left, right in itertools.pairwise(rates):
        if right.throughput >= goal:
            slope = (right.seconds - left.seconds) / (right.size - left.size)
            return goal * (left.seconds - slope * left.size) / (1 - goal * slope)
    return float(max(rates, key=lambda rate: rate.throughput).size)
