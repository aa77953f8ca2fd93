"""What the points so far say: the largest size, the best one, near-equal ones (pure)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bsprof.errors import FitError
from bsprof.fit.memory import fit_memory, largest_that_fits
from bsprof.fit.samples import PAIRED_FROM, TIE_SHARE, paired_difference
from bsprof.fit.worlds import excess_per_sample
from bsprof.measure import schedule
from bsprof.records import Point, Quantity, Target

CONTENDER_SHARE = 0.10
"""Sizes within this share of the best cost per sample are compared in turn."""
MAX_CONTENDERS = 4
RACE_SHARE = 0.25
"""A race may take this share of the seconds spent so far (heuristic: it decides among near-equals,
so it is worth little)."""
MIN_ROUNDS, MAX_ROUNDS = 3, 12
HEAP_SCATTER = 0.06
"""Share by which the largest size that ran may exceed that of another process on a CPU. Eight
processes with the same updates of a small GPT at one size peaked between 3027 and 3283 MiB."""
POINT_STEPS = 8
"""Micro-steps that one point takes, roughly: watched, warm-up and timed ones."""


def largest_size(
    points: Sequence[Point],
    usable_bytes: int,
    cap: int | None,
    predicted: Quantity | None = None,
    *,
    scatter: float = 0.0,
) -> Quantity | None:
    """The largest size that fits, in samples, with its 90 % interval; None when unknown.

    Bounded below by the largest size that ran and above by the smallest that did not; between
    them by `predicted` where that is known, else by the memory fit.

    Args:
        points: All points.
        usable_bytes: The limit.
        cap: No size above it is of interest; None for none.
        predicted: From a better model of memory than the points' own.
        scatter: Share by which processes differ in the largest size that runs; it widens an
            interval downwards that would otherwise be only what one process did.
    """
    known_ok = schedule.largest_ok(tuple(points))
    if known_ok is None:
        return None
    too_big = min((p.micro_batch_size for p in points if p.status.is_too_big), default=None)
    if cap is not None and known_ok >= cap:
        return Quantity.exact(cap)
    if predicted is None:
        try:
            predicted = largest_that_fits(
                fit_memory(points), usable_bytes, known_ok=known_ok, known_too_big=too_big, cap=cap
            )
        except FitError:
            predicted = None
    tops = [b for b in (cap, None if too_big is None else too_big - 1) if b is not None]
    top = min(tops, default=None)
    if predicted is None:
        return None if too_big is None else Quantity(value=known_ok, low=known_ok, high=too_big - 1)
    contradicted = predicted.high <= known_ok or (top is not None and predicted.low > top)
    closed = top is not None and top - known_ok <= max(1, schedule.BRACKET * known_ok)
    if contradicted or closed:
        # What ran and what did not outweighs what was predicted.
        high = top if top is not None else math.ceil(known_ok * (1 + schedule.BRACKET))
        low = max(1, math.floor(known_ok * (1 - scatter)))
        return Quantity(value=_within(predicted.value, known_ok, high), low=low, high=high)
    return Quantity(
        value=_within(predicted.value, known_ok, top),
        low=_within(predicted.low, known_ok, top),
        high=_within(predicted.high, known_ok, top),
    )


def _within(size: float, low: int, high: int | None) -> int:
    bounded = max(int(size), low)
    return bounded if high is None else min(bounded, high)


def cost_per_sample(point: Point) -> float:
    """Seconds per sample of a point's micro-step."""
    assert point.micro_step_s is not None
    return point.micro_step_s.value / point.micro_batch_size


def timed(points: Sequence[Point]) -> list[Point]:
    """Points that may be recommended and have a time."""
    return [p for p in points if p.is_ok and p.micro_step_s is not None]


def best_size(points: Sequence[Point], usable_bytes: int) -> int | None:
    """The size to choose without a target: fastest per sample, ties to the smaller; or None.

    A tie is a paired difference whose 90 % bound is at most `TIE_SHARE`: shown, not assumed. The
    usual headroom stays free, unless no size leaves it.
    """
    running = timed(points)
    limit = usable_bytes * (1 - Target(target_batch=1).headroom_share)
    usable = [p for p in running if _most_used(p) <= limit] or running
    if not usable:
        return None
    fastest = min(usable, key=cost_per_sample)
    tied = [p for p in usable if p is fastest or _is_tied(p, fastest)]
    return min(p.micro_batch_size for p in tied)


def _most_used(point: Point) -> float:
    return 0.0 if point.device_used_bytes is None else point.device_used_bytes.high


def _is_tied(point: Point, fastest: Point) -> bool:
    predicted = excess_per_sample(point, fastest)
    if predicted is not None:
        return predicted.high <= TIE_SHARE
    a, b = point.timing, fastest.timing
    if a is None or b is None:
        return False
    pairs = (
        (a.race_samples_s, b.race_samples_s),
        (a.micro_step_samples_s, b.micro_step_samples_s),
    )
    for of_point, of_fastest in pairs:
        if len(of_point) == len(of_fastest) >= PAIRED_FROM:
            difference = paired_difference(
                [s / point.micro_batch_size for s in of_point],
                [s / fastest.micro_batch_size for s in of_fastest],
            )
            return difference.high <= TIE_SHARE
    return False


def contenders(points: Sequence[Point], spent_s: float) -> tuple[tuple[int, ...], int]:
    """Sizes that are near-equal to the best, and how many rounds of them are worth their time.

    Args:
        points: All points.
        spent_s: Seconds spent on the sweep so far.
    """
    usable = sorted(timed(points), key=cost_per_sample)
    if not usable:
        return (), 0
    limit = cost_per_sample(usable[0]) * (1 + CONTENDER_SHARE)
    near = [p for p in usable if cost_per_sample(p) <= limit][:MAX_CONTENDERS]
    if len(near) < 2:
        return (), 0
    seconds = [p.micro_step_s.value for p in near if p.micro_step_s is not None]
    # Two micro-steps a round, and one of each size beforehand.
    rounds = int((RACE_SHARE * spent_s / sum(seconds) - 1) / 2)
    if rounds < MIN_ROUNDS:
        return (), 0
    return tuple(sorted(p.micro_batch_size for p in near)), min(rounds, MAX_ROUNDS)


def expected_seconds(points: Sequence[Point], size: int) -> float:
    """Seconds that measuring `size` will take, by the cost per sample of the nearest size."""
    usable = timed(points)
    if not usable:
        return 0.0
    nearest = min(usable, key=lambda p: abs(p.micro_batch_size - size))
    return cost_per_sample(nearest) * size * POINT_STEPS
