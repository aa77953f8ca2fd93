"""Which size to measure next: few, well-placed sizes (pure; nothing is run here).

Four stages, each asked in turn with all points so far:

1. *grow* fast from the smallest size while throughput could still rise, never past a known limit;
2. *refine* around the best size: neighbours at most a factor of two away, then any size at which
   the curve could still be better by more than `WORTH_MEASURING`;
3. *bracket* the largest size that fits by running it, when asked to, or when throughput still
   rises there, or when its interval is too wide to be of use;
4. stop, because no further point would change the answer.

A size is never tried twice, and no size at or above one that was too big is tried at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from bsprof.records import Point, PointStatus, Quantity

WORTH_MEASURING = 0.025
"""Possible gain in throughput that justifies another point (heuristic: below the 3 % to which a
recommendation is held, above what a few samples can tell apart)."""
GROWTH = 4
"""Factor between sizes while growing; halved once the last step gained little."""
LITTLE_GAIN = 0.25
BRACKET = 0.05
"""A bracketed largest size is known to within this share."""
USEFUL_WIDTH = 0.10
"""A predicted largest size with a wider interval is not useful (relative full width)."""
CHEAP_S = 0.3
"""A micro-step that takes less is cheap to measure beside the start of a worker (heuristic)."""
LEVER = 1.5
"""A size that is only to narrow the prediction must be so many times the largest that ran."""
KINK = 1.05
"""Segments whose slopes differ by less than this factor are one line (heuristic)."""
MAX_POINTS = 40

Timed = tuple[int, Quantity]
"""A micro-batch size with the seconds of its micro-step."""


class Stage(StrEnum):
    """Why a size is measured."""

    GROW = "grow"
    REFINE = "refine"
    BRACKET = "bracket"
    EXPLICIT = "explicit"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the schedule looks at.

    Attributes:
        points: All points so far, any order.
        smallest: First size to try (2 where batch normalisation fails at 1), at most the cap.
        cap: No size above this (data set, user's cap); None is no cap.
        largest: Predicted largest size that fits; None when it cannot be predicted yet.
        find_max: Whether the user wants the largest size bracketed by running.
        explicit: Sizes the user listed; the only ones tried, in that order.
    """

    points: tuple[Point, ...]
    smallest: int = 1
    cap: int | None = None
    largest: Quantity | None = None
    find_max: bool = False
    explicit: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next size, and whether it needs a time or just memory."""

    micro_batch_size: int
    stage: Stage
    full: bool = True


def next_step(view: View) -> Step | None:
    """The next size to measure, or None when the sweep is done."""
    tried = {p.micro_batch_size for p in view.points}
    if view.explicit:
        left = [b for b in view.explicit if b not in tried]
        return Step(micro_batch_size=left[0], stage=Stage.EXPLICIT) if left else None
    if len(tried) >= MAX_POINTS:
        return None
    timed = _timed(view.points)
    # With one size or none, a failure just above says nothing of where the best lies.
    rising = len(timed) < 2 or _still_rising(timed)
    rising_to_limit = bool(timed) and rising and timed[-1][0] == largest_ok(view.points)
    for stage, size in (
        (Stage.GROW, _grow(view, timed)),
        (Stage.REFINE, _refine(timed)),
        (Stage.BRACKET, _bracket(view, rising_to_limit, len(timed))),
    ):
        if size is not None and size not in tried and _allowed(view, size):
            full = stage is not Stage.BRACKET or rising
            return Step(micro_batch_size=size, stage=stage, full=full)
    return None


def smallest_not_run(points: tuple[Point, ...]) -> int | None:
    """The smallest size that did not fit, or did not run for another reason; None for none."""
    bad = [
        p.micro_batch_size
        for p in points
        if not p.is_ok and p.status is not PointStatus.SKIPPED  # also: fits only after a flush
    ]
    return min(bad, default=None)


def largest_ok(points: tuple[Point, ...]) -> int | None:
    """The largest size that ran below every size that did not, or None."""
    limit = smallest_not_run(points)
    good = [p.micro_batch_size for p in points if p.is_ok]
    return max((b for b in good if limit is None or b < limit), default=None)


def possible_gain(timed: list[tuple[int, float]]) -> float:
    """Share by which throughput could still rise beyond the last size.

    The last sizes (up to three, so that one slow moment does not decide) give a line
    t = t0 + c*b by least squares of relative errors; what is left to amortise at the last size is
    t0 / (c*b). Infinite with fewer than two sizes, or where time does not grow.

    Args:
        timed: (micro-batch size, seconds of a micro-step), rising sizes.
    """
    last = timed[-3:]
    if len(last) < 2:
        return math.inf
    weights = [1 / t**2 for _, t in last]
    total = sum(weights)
    mean_b = sum(w * b for w, (b, _) in zip(weights, last, strict=True)) / total
    mean_t = sum(w * t for w, (_, t) in zip(weights, last, strict=True)) / total
    spread = sum(w * (b - mean_b) ** 2 for w, (b, _) in zip(weights, last, strict=True))
    slope = (
        sum(w * (b - mean_b) * (t - mean_t) for w, (b, t) in zip(weights, last, strict=True))
        / spread
    )
    if slope <= 0:
        return math.inf
    return max(0.0, (mean_t - slope * mean_b) / (slope * last[-1][0]))


def _timed(points: tuple[Point, ...]) -> list[Timed]:
    found = [(p.micro_batch_size, p.micro_step_s) for p in points if p.is_ok]
    return sorted(((b, t) for b, t in found if t is not None), key=lambda item: item[0])


def _allowed(view: View, size: int) -> bool:
    too_big = smallest_not_run(view.points)
    return (
        size >= 1 and (view.cap is None or size <= view.cap) and (too_big is None or size < too_big)
    )


def _ceiling(view: View) -> int | None:
    """The largest size worth trying while the limit is only predicted; None is no limit."""
    too_big = smallest_not_run(view.points)
    limits = (
        view.cap,
        None if too_big is None else largest_ok(view.points),  # the bracket goes on from there
        None if view.largest is None else max(int(view.largest.low), view.smallest),
    )
    return min((b for b in limits if b is not None), default=None)


def _grow(view: View, timed: list[Timed]) -> int | None:
    if not timed:
        too_big = smallest_not_run(view.points)
        first = view.smallest
        if too_big is None or too_big > first:
            return first
        return max(1, too_big // 2) if too_big > 1 else None
    last = timed[-1][0]
    if len(timed) >= 2 and not _still_rising(timed):
        return None
    factor = GROWTH
    if len(timed) >= 2:
        (b0, t0), (b1, t1) = timed[-2:]
        if (b1 / t1.value) / (b0 / t0.value) - 1 < LITTLE_GAIN:
            factor = 2
    ceiling = _ceiling(view)
    wanted = last * factor
    if ceiling is not None:
        wanted = min(wanted, ceiling)
    return wanted if wanted > last * (1 + BRACKET) else None


def _still_rising(timed: list[Timed]) -> bool:
    """Whether growth beyond the last size could pay, by the last segments of the curve.

    That throughput falls must be clear of both intervals: one slow moment ends no sweep. A size
    that takes as long as all before it together, and is not cheap, has to promise twice as much.
    """
    (last, seconds), before = timed[-1], timed[:-1]
    best, best_seconds = min(before, key=lambda item: item[1].value / item[0])
    if seconds.low / last > best_seconds.high / best * (1 + WORTH_MEASURING):
        return False
    spent = sum(t.value for _, t in timed)
    # Twice the last size takes about twice as long.
    costly = 2 * seconds.value >= spent and seconds.value >= CHEAP_S
    worth = WORTH_MEASURING * (2 if costly else 1)
    return possible_gain([(b, t.value) for b, t in timed]) > worth


def _refine(timed: list[Timed]) -> int | None:
    if len(timed) < 2:
        return None
    costs = [t.value / b for b, t in timed]
    best = min(range(len(timed)), key=costs.__getitem__)
    size = timed[best][0]
    inside = 0 < best < len(timed) - 1  # at the end of a rising curve nothing hides before it
    if inside and size > 2 * timed[best - 1][0]:
        return nice_between(timed[best - 1][0], size)
    if best + 1 < len(timed) and timed[best + 1][0] > 2 * size:
        return nice_between(size, timed[best + 1][0])
    return _most_promising_gap(timed, costs[best])


def _most_promising_gap(timed: list[Timed], best_cost: float) -> int | None:
    """A size in the gap whose optimistic cost undercuts the best by the most, if by enough.

    Between a and b the optimist continues the slope before a right up to b, as if whatever slows
    b down came just before it (a cliff). That b is slow must be clear of its interval.
    """
    promising: tuple[float, int] | None = None
    for i in range(1, len(timed) - 1):
        (b0, t0), (b1, t1), (b2, t2) = timed[i - 1 : i + 2]
        if b2 - b1 <= max(1, 0.06 * b2):
            continue
        if i + 2 < len(timed):
            b3, t3 = timed[i + 2]
            if _slope(b1, t1.value, b2, t2.value) <= KINK * _slope(b2, t2.value, b3, t3.value):
                continue  # it goes on as steeply afterwards: a bend, not a cliff
        slope = max(_slope(b0, t0.value, b1, t1.value), 0.5 * t1.value / b1)
        if t2.low <= (t1.high + slope * (b2 - b1)) * (1 + WORTH_MEASURING):
            continue  # the gap lies on the line: nothing hides in it
        top = b2 - 1
        gain = best_cost / ((t1.value + slope * (top - b1)) / top) - 1
        if gain > WORTH_MEASURING and (promising is None or gain > promising[0]):
            promising = (gain, nice_between(b1, b2) or b1 + 1)
    return promising[1] if promising else None


def _slope(b0: int, t0: float, b1: int, t1: float) -> float:
    return (t1 - t0) / (b1 - b0)


def _bracket(view: View, rising: bool, timed: int) -> int | None:
    good, too_big = largest_ok(view.points), smallest_not_run(view.points)
    if good is None or (view.cap is not None and good >= view.cap):
        return None
    if view.find_max or (rising and (timed >= 2 or too_big is not None)):
        return _halve_bracket(view, good, too_big)
    too_wide = view.largest is not None and view.largest.relative_width > USEFUL_WIDTH
    untimed = any(p.is_ok and p.micro_step_s is None for p in view.points)
    if too_big is None and too_wide and not untimed and view.largest is not None:
        # A longer lever narrows the prediction without paying for a run at the limit; once.
        wanted = min(2 * good, int(view.largest.low))
        return wanted if wanted >= LEVER * good else None
    return None


def _halve_bracket(view: View, good: int, too_big: int | None) -> int | None:
    step = max(1, math.floor(BRACKET * good))
    predicted = None if view.largest is None else int(view.largest.value)
    if too_big is None:
        if predicted is None:
            return good * 2
        # One run at the prediction, one a bracket's width above what ran: two close the bracket.
        return predicted if predicted > good + step else good + step
    if too_big - good <= step:
        return None
    if predicted is not None and good + step // 2 < predicted < too_big - step // 2:
        return predicted
    return nice_between(good, too_big)


def nice_between(low: int, high: int) -> int | None:
    """A size strictly between, near the geometric mean, and a multiple of 8, 4 or 2 if one fits."""
    if high - low < 2:
        return None
    mean = math.sqrt(low * high)
    for multiple in (8, 4, 2):
        if high - low >= 2 * multiple:
            size = round(mean / multiple) * multiple
            if low < size < high:
                return size
    return min(max(round(mean), low + 1), high - 1)
