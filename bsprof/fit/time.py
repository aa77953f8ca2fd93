"""Seconds of a micro-step against micro-batch size: fit, and evaluate with an interval.

The form is a smooth maximum, t(b) = smooth max(floor, t0 + c*b): a floor set by launches at small
sizes, a line above it. Real curves have steps, waves and cliffs that no form has, so between
measured sizes the form is corrected by interpolating its log residuals; the interval there is
that of a rough random walk in log(b) pinned at both ends, whose strength comes from the points
themselves and, while they are few, from a guess calibrated on public sweeps (see tests/fit).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bsprof.errors import FitError
from bsprof.fit.knee import KNEE_SHARE, Rate, measured_rates, throughput_shape
from bsprof.fit.student import t_quantile
from bsprof.records.fit import TimeFit
from bsprof.records.point import Point
from bsprof.records.quantity import Quantity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

EXTRAPOLATION_SHARE = 0.18
"""Least half width of an extrapolated time: lines through the lower 60 % of public sweeps miss
the rest by 13 % (median), nearly always on the fast side."""
_CORNER = 0.5  # rounding of the corner over the floor; heuristic, the data rarely show it
_MODEL_ERROR = 0.02  # relative; keeps very precise points from bending the form
_FLOOR_FROM = 4  # sizes needed before a floor is looked for: affine is better below
# Strength of the walk before any data, and for how many interior points it counts. Calibrated
# on 18 training sweeps (Sia) and 18 layer sweeps (transformers-benchmarks).
PRIOR_WIGGLE = 0.065
PRIOR_WEIGHT = 2
# Variance of the walk grows with distance to this power; 1 would be Brownian, 0 independent at
# every size. Real curves lie between: trends, and waves from tile sizes (same calibration).
_ROUGHNESS = 0.25


def fit_time(points: Sequence[Point], *, knee_share: float = KNEE_SHARE) -> TimeFit:
    """The curve through the micro-step times of all points that ran.

    The verdict on saturation and the knee come from the measured points (`bsprof.fit.knee`), not
    from the form.

    Args:
        points: Points of one profile; failed and retried ones are left out.
        knee_share: Share of the asymptotic throughput that makes the knee, 0 to 1.

    Raises:
        FitError: fewer than two sizes with times.
    """
    rates = measured_rates(points)
    if len(rates) < 2:
        raise FitError(
            "cannot fit time against micro-batch size",
            found=f"{len(rates)} size(s) with times",
            next_step="measure at least two sizes that fit",
        )
    form, covariance = _fit_form(rates)
    residuals = [math.log(r.seconds / _form(form, r.size)) for r in rates]
    anchors = tuple(
        (float(r.size), residual, r.error) for r, residual in zip(rates, residuals, strict=True)
    )
    wiggle, degrees = _wiggle(anchors)
    shape = throughput_shape(points, knee_share=knee_share)
    free = 3 if form[0] > 0 else 2
    return TimeFit(
        floor_s=form[0],
        offset_s=form[1],
        slope_s=form[2],
        smoothness_s=_CORNER * form[0],
        covariance=covariance,
        residual=math.sqrt(sum(x * x for x in residuals) / len(residuals)),
        degrees_of_freedom=max(0, len(rates) - free),
        low_micro_batch_size=rates[0].size,
        high_micro_batch_size=rates[-1].size,
        saturation=shape.saturation,
        knee=shape.knee,
        knee_share=knee_share,
        anchors=anchors,
        wiggle=wiggle,
        wiggle_degrees_of_freedom=degrees,
    )


def predict_time(fit: TimeFit, micro_batch_size: float) -> tuple[Quantity, bool]:
    """Seconds of a micro-step at a size, and whether that is an extrapolation.

    The 90 % interval of an extrapolation is at least plus and minus `EXTRAPOLATION_SHARE`.
    Pure Python.

    Raises:
        ValueError: a size that is not above zero.
    """
    if micro_batch_size <= 0:
        raise ValueError(f"a micro-batch size is above zero, not {micro_batch_size}")
    form = max(
        _form((fit.floor_s, fit.offset_s, fit.slope_s), micro_batch_size), 1e-6 * fit.slope_s
    )
    extrapolated = not fit.low_micro_batch_size <= micro_batch_size <= fit.high_micro_batch_size
    correction, variance = _correction(fit, micro_batch_size)
    if extrapolated:
        variance += _form_variance(fit, micro_batch_size) / form**2
    value = form * math.exp(correction)
    margin = t_quantile(0.95, fit.wiggle_degrees_of_freedom) * math.sqrt(variance)
    if extrapolated:
        margin = max(margin, EXTRAPOLATION_SHARE)
    margin = min(margin, 3.0)
    low = value * (1 - EXTRAPOLATION_SHARE) if extrapolated else value
    high = value * (1 + EXTRAPOLATION_SHARE) if extrapolated else value
    return (
        Quantity.ordered(
            value, min(low, value * math.exp(-margin)), max(high, value * math.exp(margin))
        ),
        extrapolated,
    )


def _form(form: Sequence[float], size: float) -> float:
    """Smooth maximum of floor and t0 + c*b, in seconds."""
    floor, offset, slope = form
    line = offset + slope * size
    if floor <= 0:
        return line
    return 0.5 * (floor + line + math.hypot(floor - line, _CORNER * floor))


def _form_variance(fit: TimeFit, size: float) -> float:
    """Squared standard error of the form at a size, in squared seconds."""
    line = fit.offset_s + fit.slope_s * size
    if fit.floor_s > 0:
        root = math.hypot(fit.floor_s - line, fit.smoothness_s)
        by_line = 0.5 * (1 - (fit.floor_s - line) / root)
        by_floor = 1 - by_line
    else:
        by_line, by_floor = 1.0, 0.0
    gradient = (by_floor, by_line, by_line * size)
    return max(
        0.0,
        sum(
            a * b * fit.covariance[i][j]
            for i, a in enumerate(gradient)
            for j, b in enumerate(gradient)
        ),
    )


def _correction(fit: TimeFit, size: float) -> tuple[float, float]:
    """Log of true over form at a size, by interpolation, and its variance."""
    anchors = fit.anchors
    index = bisect.bisect_left([a[0] for a in anchors], size)
    if index < len(anchors) and anchors[index][0] == size:
        return anchors[index][1], anchors[index][2] ** 2
    if index in (0, len(anchors)):
        edge = anchors[0 if index == 0 else -1]
        distance = abs(math.log(size / edge[0]))
        return edge[1], edge[2] ** 2 + fit.wiggle**2 * distance**_ROUGHNESS
    (left, left_ratio, left_error), (right, right_ratio, right_error) = anchors[
        index - 1 : index + 1
    ]
    width = math.log(right / left)
    share = math.log(size / left) / width
    variance = (
        ((1 - share) * left_error) ** 2
        + (share * right_error) ** 2
        + fit.wiggle**2 * _loose(width, share)
    )
    return (1 - share) * left_ratio + share * right_ratio, variance


def _loose(width: float, share: float) -> float:
    """Variance of the log ratio at a share of the way between two anchors, for wiggle 1."""
    return float((width * share * (1 - share)) ** _ROUGHNESS)


def _wiggle(anchors: Sequence[tuple[float, ...]]) -> tuple[float, int]:
    """Strength of the walk, from how far each anchor lies off the line between its neighbours."""
    total = PRIOR_WEIGHT * PRIOR_WIGGLE**2
    count = 0
    for (b0, r0, e0), (b1, r1, e1), (b2, r2, e2) in zip(
        anchors, anchors[1:], anchors[2:], strict=False
    ):
        width = math.log(b2 / b0)
        share = math.log(b1 / b0) / width
        noise = ((1 - share) * e0) ** 2 + e1**2 + (share * e2) ** 2
        square = (r1 - (1 - share) * r0 - share * r2) ** 2
        total += max(0.0, square - noise) / _loose(width, share)
        count += 1
    return math.sqrt(total / (PRIOR_WEIGHT + count)), PRIOR_WEIGHT + count


def _fit_form(
    rates: Sequence[Rate],
) -> tuple[tuple[float, float, float], tuple[tuple[float, ...], ...]]:
    """(floor, t0, c) and their covariance, by least squares on relative errors.

    A line first; a floor only where it lowers the corrected Akaike criterion.
    """
    import numpy as np
    from scipy.optimize import least_squares

    sizes = np.array([r.size for r in rates], dtype=np.float64)
    seconds = np.array([r.seconds for r in rates], dtype=np.float64)
    errors = np.hypot(np.array([r.error for r in rates], dtype=np.float64), _MODEL_ERROR)
    first, unit = float(seconds[0]), float(seconds[-1] / sizes[-1])

    # Parameters are logarithms, in units of the data: time of the line at the smallest size,
    # slope, floor. So the form is positive over the whole measured range.
    def misses(logs: FloatArray) -> FloatArray:
        parameters = np.exp(np.clip(logs, -30.0, 30.0))
        form = first * parameters[0] + unit * parameters[1] * (sizes - sizes[0])
        if len(logs) == 3:
            floor = first * parameters[2]
            form = 0.5 * (floor + form + np.hypot(floor - form, _CORNER * floor))
        return np.asarray((form / seconds - 1) / errors, dtype=np.float64)

    starts = [[0.0, 0.0]]
    if len(rates) >= _FLOOR_FROM:
        starts += [[-1.0, 0.0, 0.0], [-0.1, 0.0, -0.1]]
    solutions = [least_squares(misses, start, method="lm") for start in starts]
    best = min(solutions, key=lambda s: _akaike(float(2 * s.cost), len(s.x), len(rates)))
    parameters = np.exp(np.clip(best.x, -30.0, 30.0))
    start, slope = first * float(parameters[0]), unit * float(parameters[1])
    floor = first * float(parameters[2]) if len(best.x) == 3 else 0.0
    form = (floor, start - slope * float(sizes[0]), slope)

    inflation = max(1.0, float(2 * best.cost) / max(1, len(rates) - len(best.x)))
    jacobian = np.asarray(best.jac, dtype=np.float64)
    inner = np.linalg.pinv(jacobian.T @ jacobian) * inflation
    change = np.zeros((3, len(best.x)))  # of (floor, t0, c) with the solver's parameters
    change[1, 0], change[1, 1], change[2, 1] = start, -slope * sizes[0], slope
    if len(best.x) == 3:
        change[0, 2] = floor
    outer = change @ inner @ change.T
    return form, tuple(tuple(float(v) for v in row) for row in outer)


def _akaike(squares: float, free: int, count: int) -> float:
    """Corrected Akaike criterion of a fit whose errors are known; infinite without spare points."""
    if count - free - 1 <= 0:
        return squares + 2 * free if free == 2 else math.inf
    return squares + 2 * free + 2 * free * (free + 1) / (count - free - 1)
