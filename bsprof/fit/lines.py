"""A straight line through few points whose scatter grows with the line itself. Pure Python.

Model: y = base + slope * x, with independent scatter of standard deviation
`share * spread(x)`. The spread mixes a floor with the growth slope * g, where g >= 0 is the part
of x that grows with the micro-batch: fragments that an allocator strands are as big as the
tensors around them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Calibrated together on public sweeps and CPU sweeps (see tests/fit): scatter at the largest
# measured growth, as a share of that growth, and for how many observations this guess counts.
PRIOR_SHARE = 0.01
PRIOR_WEIGHT = 1
FLOOR_SHARE = 0.05  # the floor of the spread, as a share of the smallest y
_PASSES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A fitted line.

    Attributes:
        base, slope: Of y = base + slope * x.
        covariance: Of (base, slope), row by row.
        share: Standard deviation of the scatter at the largest growth, over that growth.
        degrees_of_freedom: Behind `share`, the prior guess included; at least 1.
        floor: Part of the spread that does not grow, in units of y.
        top_growth: slope * g at the largest measured g.
    """

    base: float
    slope: float
    covariance: tuple[tuple[float, float], tuple[float, float]]
    share: float
    degrees_of_freedom: int
    floor: float
    top_growth: float

    def deviation(self, growth: float) -> float:
        """Standard deviation of one outcome around the line where slope * g is `growth`."""
        return self.share * _spread(growth, self.top_growth, self.floor)


def variance_of_mean(covariance: Sequence[Sequence[float]], x: float) -> float:
    """Squared standard error of a line itself at x, from the covariance of (base, slope)."""
    (bb, bs), (_, ss) = covariance
    return max(0.0, bb + 2 * x * bs + x * x * ss)


def fit_line(
    x: Sequence[float],
    y: Sequence[float],
    growing: Sequence[float],
    *,
    slope_guess: tuple[float, float] | None = None,
) -> Line:
    """The line through at least two points, with weights from its own growth.

    Args:
        x, y: The points, any order.
        growing: g of each point, in units of x.
        slope_guess: Mean and standard deviation of what is known about the slope beforehand.

    Raises:
        ValueError: fewer than two different x.
    """
    if len(set(x)) < 2:
        raise ValueError("a line needs two different x")
    n = len(x)
    floor = max(FLOOR_SHARE * min(abs(v) for v in y), 1e-12 * max(abs(v) for v in y))
    weights = [1.0] * n
    slope = base = 0.0
    share = PRIOR_SHARE
    top = floor
    guess_weight = 0.0
    for _ in range(_PASSES):
        w = sum(weights)
        mean_x = _dot(weights, x) / w
        mean_y = _dot(weights, y) / w
        sxx = sum(k * (a - mean_x) ** 2 for k, a in zip(weights, x, strict=True))
        sxy = sum(k * (a - mean_x) * (b - mean_y) for k, a, b in zip(weights, x, y, strict=True))
        if slope_guess is not None and share > 0 and top > floor:
            guess_weight = (share / slope_guess[1]) ** 2
        guess = slope_guess[0] if slope_guess is not None else 0.0
        slope = (sxy + guess_weight * guess) / (sxx + guess_weight)
        base = mean_y - slope * mean_x
        top = max(abs(slope) * max(growing), floor)
        spreads = [_spread(abs(slope) * g, top, floor) for g in growing]
        squares = sum(
            ((b - base - slope * a) / s) ** 2 for a, b, s in zip(x, y, spreads, strict=True)
        )
        variance = (PRIOR_WEIGHT * PRIOR_SHARE**2 + squares) / (PRIOR_WEIGHT + n - 2)
        share = math.sqrt(variance)
        weights = [1 / s**2 for s in spreads]
    slope_variance = variance / (sxx + guess_weight)
    base_variance = variance / w + mean_x**2 * slope_variance
    return Line(
        base=base,
        slope=slope,
        covariance=(
            (base_variance, -mean_x * slope_variance),
            (-mean_x * slope_variance, slope_variance),
        ),
        share=share,
        degrees_of_freedom=max(1, round(PRIOR_WEIGHT + n - 2)),
        floor=floor,
        top_growth=top,
    )


def _spread(growth: float, top: float, floor: float) -> float:
    return top * math.hypot(growth, floor) / math.hypot(top, floor)


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(p * q for p, q in zip(a, b, strict=True))
