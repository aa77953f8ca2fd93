"""Peak memory against micro-batch size: fit, evaluate, invert. Pure Python.

A peak is the maximum over phases of nearly straight lines. Where points carry allocated bytes by
phase, these give the lines (they are affine to a fraction of a percent), and what counts against
the limit is one straight function of the allocated peak; that keeps the kink between phases exact
although an allocator that caches hides it in its own numbers. Otherwise each phase of the
device's numbers gets its own line, without the sizes at which another phase still holds it up.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from bsprof.errors import FitError
from bsprof.fit.lines import FLOOR_SHARE, Line, fit_line, variance_of_mean
from bsprof.fit.student import t_cdf, t_quantile
from bsprof.records.fit import MemoryFit, PhaseLine
from bsprof.records.parts import Phase
from bsprof.records.point import Point
from bsprof.records.quantity import Quantity

LARGEST_EXTRAPOLATION = 16
"""A predicted largest size is at most this many times the largest measured one."""
# What counts against the limit grows with allocated bytes by this factor, give or take: CUDA's
# reserved bytes 1.0 to 1.15, the C heap on a CPU 1.0 to 1.45 (own sweeps of small models).
_GROWTH_OVER_ALLOCATED = (1.1, 0.2)
# Beyond the measured sizes the line itself bends: further standard deviation, as a multiple of the
# scatter but at most as a share of the growth there. Calibrated with `lines.PRIOR_SHARE`.
_BEND = 3.0
_LARGEST_BEND = 0.02
_LEVEL_ERROR = 0.002  # relative; page and block granularity, also the least a kink must explain
_EVEN = 1e-6  # a peak that equals the limit to the byte fits; rounding must not decide
_SEARCH_LIMIT = 1024  # sizes looked at, over the largest measured: past it an end is only "far"


def fit_memory(points: Sequence[Point]) -> MemoryFit:
    """Lines of peak device memory by phase, from points that ran without a cache flush.

    Raises:
        FitError: fewer than two sizes with memory numbers.
    """
    usable = {p.micro_batch_size: p for p in points if p.is_ok and _device_used(p) is not None}
    sizes = sorted(usable)
    if len(sizes) < 2:
        raise FitError(
            "cannot fit memory against micro-batch size",
            found=f"{len(sizes)} size(s) with memory numbers",
            next_step="measure at least two sizes that fit",
        )
    ordered = [usable[size] for size in sizes]
    lines = _lines_by_allocation(ordered) or _lines_by_phase(ordered)
    visible = any(
        line.slope_bytes
        > t_quantile(0.95, line.degrees_of_freedom) * math.sqrt(line.covariance[1][1])
        and line.slope_bytes > 0
        for line in lines
    )
    return MemoryFit(
        lines=tuple(lines),
        slope_visible=visible,
        low_micro_batch_size=sizes[0],
        high_micro_batch_size=sizes[-1],
    )


def predict_memory(fit: MemoryFit, micro_batch_size: float) -> tuple[Quantity, bool]:
    """Peak bytes of one run at a size, and whether that lies outside the measured sizes.

    The 90 % interval holds the line's own error and the scatter of a single run.
    """
    centres, lows, highs = [], [], []
    for line in fit.lines:
        centre = line.base_bytes + line.slope_bytes * micro_batch_size
        margin = t_quantile(0.95, line.degrees_of_freedom) * _deviation(
            line, micro_batch_size, fit.high_micro_batch_size
        )
        centres.append(centre)
        lows.append(centre - margin)
        highs.append(centre + margin)
    value = max(0.0, *centres)
    outside = not fit.low_micro_batch_size <= micro_batch_size <= fit.high_micro_batch_size
    return Quantity.ordered(value, max(0.0, *lows), max(0.0, *highs)), outside


def largest_that_fits(
    fit: MemoryFit,
    usable_bytes: float,
    *,
    known_ok: int,
    known_too_big: int | None,
    cap: int | None,
) -> Quantity | None:
    """The largest micro-batch size whose peak stays within `usable_bytes`, in whole samples.

    The 90 % interval is what the fit says given what was run: from `known_ok` up, below
    `known_too_big`, at most `cap`. The value is never more than `LARGEST_EXTRAPOLATION` times
    the largest measured size. None when growth with the size cannot be told from zero and no
    failing size bounds it: then there is nothing to solve, only larger sizes to try. A failing
    size at or below `known_ok` (fit is not always monotone) is no bound.
    """
    too_big = known_too_big if known_too_big is not None and known_too_big > known_ok else None
    limits = [b for b in (cap, None if too_big is None else too_big - 1) if b is not None]
    ceiling = min(limits, default=None)
    if ceiling is not None and known_ok >= ceiling:
        return Quantity.exact(known_ok)
    if not fit.slope_visible:
        if too_big is None or ceiling is None:
            return None
        return Quantity(value=known_ok, low=known_ok, high=ceiling)
    top = ceiling if ceiling is not None else _SEARCH_LIMIT * fit.high_micro_batch_size

    def chance_too_big(size: int) -> float:
        return _chance_above(fit, size, usable_bytes)

    none_left = chance_too_big(known_ok)
    all_gone = 1.0 if too_big is None else chance_too_big(too_big)
    if all_gone - none_left <= 1e-9:  # what was run contradicts the fit: only the bracket is left
        high = top if too_big is not None else known_ok
        return Quantity(value=(known_ok + high) // 2, low=known_ok, high=high)
    low, value, high = (
        _last_below(chance_too_big, none_left + share * (all_gone - none_left), known_ok, top)
        for share in (0.05, 0.5 + _EVEN, 0.95)
    )
    value = min(value, max(known_ok, LARGEST_EXTRAPOLATION * fit.high_micro_batch_size))
    return Quantity(value=value, low=min(low, value), high=max(high, value))


def _device_used(point: Point) -> float | None:
    """Peak of what counts against the limit, over all phases."""
    if point.memory is not None and point.memory.device_used_by_phase_bytes:
        return float(max(point.memory.device_used_by_phase_bytes.values()))
    return None if point.device_used_bytes is None else point.device_used_bytes.value


def _deviation(line: PhaseLine, size: float, measured: int) -> float:
    """Standard deviation of one run around the line's estimate at a size."""
    mean = variance_of_mean(line.covariance, size)
    floor = max(FLOOR_SHARE * abs(line.base_bytes), 1.0)
    scatter = (
        line.residual_bytes
        * math.hypot(line.slope_bytes * size, floor)
        / math.hypot(line.slope_bytes * measured, floor)
    )
    growth = abs(line.slope_bytes) * measured
    bend = min(_BEND * line.residual_bytes, _LARGEST_BEND * growth)
    bend *= max(0.0, size / measured - 1)
    return math.sqrt(mean + scatter**2 + bend**2)


def _chance_above(fit: MemoryFit, size: int, bytes_: float) -> float:
    """Probability that a run at this size needs more than so many bytes."""
    worst = 0.0
    for line in fit.lines:
        distance = line.base_bytes + line.slope_bytes * size - bytes_
        deviation = max(_deviation(line, size, fit.high_micro_batch_size), 1e-3)
        worst = max(worst, t_cdf(distance / deviation, line.degrees_of_freedom))
    return worst


def _last_below(chance: Callable[[int], float], limit: float, low: int, high: int) -> int:
    """Largest size in low..high whose chance is at most `limit`; low if none is."""
    while low < high:
        middle = (low + high + 1) // 2
        if chance(middle) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def _lines_by_allocation(points: Sequence[Point]) -> list[PhaseLine]:
    """Lines through allocated bytes by phase, mapped to device bytes; empty where it cannot be."""
    tables = [p.memory.allocated_by_phase_bytes if p.memory is not None else {} for p in points]
    phases = _common_phases(tables)
    sizes = [float(p.micro_batch_size) for p in points]
    used = [_device_used(p) or 0.0 for p in points]
    allocated = {phase: fit_line(sizes, [t[phase] for t in tables], sizes) for phase in phases}
    growth = [
        max((max(0.0, line.slope) * size for line in allocated.values()), default=0.0)
        for size in sizes
    ]
    peaks = [float(max((t[phase] for phase in phases), default=0)) for t in tables]
    if not phases or max(peaks) - min(peaks) <= 1e-6 * max(peaks):
        return []  # allocated bytes do not grow: they explain nothing
    grown = [g if _is_growing(allocated, tables[i]) else 0.0 for i, g in enumerate(growth)]
    mapped = fit_line(peaks, used, grown, slope_guess=_GROWTH_OVER_ALLOCATED)
    return [_mapped(phase, allocated[phase], mapped) for phase in phases]


def _common_phases(tables: Sequence[Mapping[Phase, int]]) -> list[Phase]:
    return [phase for phase in Phase if all(phase in table for table in tables)]


def _is_growing(allocated: Mapping[Phase, Line], table: Mapping[Phase, int]) -> bool:
    """Whether the phase that holds the peak at this size is one that grows with the size."""
    peak = max(allocated, key=lambda phase: table[phase])
    steepest = max(line.slope for line in allocated.values())
    return allocated[peak].slope > 0.01 * steepest


def _mapped(phase: Phase, inner: Line, outer: Line) -> PhaseLine:
    """The line outer(inner(size)); errors of both, to first order."""
    (obb, obs), (_, oss) = outer.covariance
    (ibb, ibs), (_, iss) = inner.covariance
    square = outer.slope**2
    base_variance = obb + 2 * inner.base * obs + inner.base**2 * oss + square * ibb
    slope_variance = inner.slope**2 * oss + square * iss
    shared = inner.slope * (obs + inner.base * oss) + square * ibs
    return PhaseLine(
        phase=phase,
        base_bytes=outer.base + outer.slope * inner.base,
        slope_bytes=outer.slope * inner.slope,
        covariance=((base_variance, shared), (shared, slope_variance)),
        residual_bytes=outer.deviation(outer.top_growth),
        degrees_of_freedom=outer.degrees_of_freedom,
    )


def _lines_by_phase(points: Sequence[Point]) -> list[PhaseLine]:
    """One line per phase of the device's own numbers; the peak as one phase without them."""
    tables = [p.memory.device_used_by_phase_bytes if p.memory is not None else {} for p in points]
    sizes = [p.micro_batch_size for p in points]
    phases = _common_phases(tables)
    if not phases:
        peak = points[-1].peak_phase or Phase.FORWARD_BACKWARD
        return _kinked(peak, sizes, [_device_used(p) or 0.0 for p in points])
    lines = []
    for phase in phases:
        lines += _kinked(phase, sizes, [float(table[phase]) for table in tables])
    return lines


def _kinked(phase: Phase, sizes: Sequence[int], used: Sequence[float]) -> list[PhaseLine]:
    """The growing line, and the level that holds the smallest sizes up where one is seen.

    The number of sizes on the level is the one with the best score (Bayesian information
    criterion, relative residuals); at least three sizes stay on the line.
    """
    line = fit_line(sizes, used, sizes)
    best = _misfit(sizes, used, line, 0)
    first = 0
    for start in range(1, len(sizes) - 2):
        rest = fit_line(sizes[start:], used[start:], sizes[start:])
        score = _misfit(sizes, used, rest, start) + 2 * math.log(len(sizes))
        if rest.slope > 0 and score < best:
            best, first, line = score, start, rest
    result = [_phase_line(phase, line)]
    if first:
        level = statistics.fmean(used[:first])
        spread = max(abs(v - level) for v in used[:first])
        result.append(
            PhaseLine(
                phase=phase,
                base_bytes=level,
                slope_bytes=0.0,
                covariance=((0.0, 0.0), (0.0, 0.0)),
                residual_bytes=max(spread, _LEVEL_ERROR * level),
                degrees_of_freedom=line.degrees_of_freedom,
            )
        )
    return result


def _misfit(sizes: Sequence[int], used: Sequence[float], line: Line, level_sizes: int) -> float:
    """n * log(mean squared relative residual) of a line under a level for the first sizes."""
    level = statistics.fmean(used[:level_sizes]) if level_sizes else -math.inf
    total = 0.0
    for size, peak in zip(sizes, used, strict=True):
        total += ((peak - max(level, line.base + line.slope * size)) / peak) ** 2
    return len(sizes) * math.log(total / len(sizes) + _LEVEL_ERROR**2)


def _phase_line(phase: Phase, line: Line) -> PhaseLine:
    return PhaseLine(
        phase=phase,
        base_bytes=line.base,
        slope_bytes=line.slope,
        covariance=line.covariance,
        residual_bytes=line.deviation(line.top_growth),
        degrees_of_freedom=line.degrees_of_freedom,
    )
