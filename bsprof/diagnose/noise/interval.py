"""The noise scale with its interval, from squares and products of the pieces' gradients. Pure.

Numerator tr(S) and denominator |G|^2 are averaged over updates apart, then divided. Their errors
come from leaving out one piece at a time (the jackknife), and the interval of the ratio from
Fieller's theorem: where the denominator is not clearly above zero the interval has no end, and no
noise scale is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bsprof.accumulation.noise import NoiseParts, noise_parts
from bsprof.diagnose.noise.records import NoiseEstimate
from bsprof.fit.student import t_quantile
from bsprof.records import Quantity

FEWEST_PIECES = 16
"""Heuristic: with fewer, a jackknife does not know its own error."""
WIDEST = 10.0
"""Heuristic: an interval whose ends are further apart says nothing that could be used."""
CONFIDENCE = 0.90
SAME = 1e-6
"""A piece's noise over the signal that is rounding: fp32 gradients of equal pieces show so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Pieces at the same weights.

    Attributes:
        samples: Of each piece.
        squares: |g|^2 of each piece's mean gradient g.
        products: The dot product of each with the mean over all of them.
        total: |mean|^2.
    """

    samples: int
    squares: Sequence[float]
    products: Sequence[float]
    total: float

    @property
    def parts(self) -> NoiseParts:
        """Unbiased numerator and denominator."""
        return _parts(len(self.squares), self.samples, _mean(self.squares), self.total)

    def without_each(self) -> list[NoiseParts]:
        """The same without the first, the second, ... piece."""
        count, local = len(self.squares), _mean(self.squares)
        left = count - 1
        return [
            _parts(
                left,
                self.samples,
                (count * local - square) / left,
                (count**2 * self.total - 2 * count * product + square) / left**2,
            )
            for square, product in zip(self.squares, self.products, strict=True)
        ]


def estimate(windows: Sequence[Window]) -> NoiseEstimate:
    """The noise scale over all windows together."""
    pieces = sum(len(window.squares) for window in windows)
    usable = [window for window in windows if len(window.squares) > 2]
    if not usable:
        return NoiseEstimate(
            noise_scale=None,
            variance=0.0,
            signal=0.0,
            pieces=pieces,
            reason=f"not enough: {pieces} pieces, at least {FEWEST_PIECES} are needed",
        )
    parts = [window.parts for window in usable]
    variance = _mean([p.variance for p in parts])
    signal = _mean([p.signal for p in parts])
    low, high, reason = 0.0, 0.0, ""
    if pieces < FEWEST_PIECES:
        reason = f"not enough: {pieces} pieces, at least {FEWEST_PIECES} are needed"
    elif not all(map(math.isfinite, (variance, signal))):
        reason = "not enough: gradients that are not finite"
    elif variance <= SAME * max(signal, 0.0) * usable[0].samples:
        reason = "not enough: the pieces' gradients do not differ; is the data random?"
    else:
        ends = _fieller(usable, variance, signal)
        if ends is None:
            reason = (
                f"not enough: {pieces} pieces of {usable[0].samples} samples do not show the "
                "gradient above its noise; take more or larger pieces"
            )
        else:
            low, high = ends
            if high > WIDEST * low:
                reason = (
                    f"not enough: {pieces} pieces leave it between {low:.2g} and {high:.2g} "
                    "samples; take more or larger pieces"
                )
    value = None
    if not reason:
        ratio = variance / signal
        value = Quantity(value=ratio, low=min(low, ratio), high=max(high, ratio))
    return NoiseEstimate(
        noise_scale=value, variance=variance, signal=signal, pieces=pieces, reason=reason
    )


def _parts(count: int, samples: int, local: float, total: float) -> NoiseParts:
    return noise_parts(
        local=local, total=total, per_piece=1 / samples, per_update=1 / (count * samples)
    )


def _fieller(
    windows: Sequence[Window], variance: float, signal: float
) -> tuple[float, float] | None:
    """Ends of the ratio's interval; None where it has no upper end."""
    of_variance = of_signal = of_both = 0.0
    freedom = 0
    for window in windows:
        left_out = window.without_each()
        count = len(left_out)
        freedom += count - 1
        middle_v = _mean([p.variance for p in left_out])
        middle_s = _mean([p.signal for p in left_out])
        scale = (count - 1) / count / len(windows) ** 2
        for p in left_out:
            off_v, off_s = p.variance - middle_v, p.signal - middle_s
            of_variance += scale * off_v * off_v
            of_signal += scale * off_s * off_s
            of_both += scale * off_v * off_s
    t = t_quantile(0.5 + CONFIDENCE / 2, freedom)
    # (variance - r signal)^2 = t^2 (of_variance - 2 r of_both + r^2 of_signal), solved for r.
    square = signal**2 - t**2 * of_signal
    linear = variance * signal - t**2 * of_both
    constant = variance**2 - t**2 * of_variance
    if signal <= 0 or square <= 0:
        return None
    root = math.sqrt(max(0.0, linear**2 - square * constant))
    low, high = (linear - root) / square, (linear + root) / square
    return (low, high) if low > 0 else None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
