"""The gradient noise scale from squares of gradients (McCandlish et al., arXiv 1812.06162). Pure.

A gradient over n samples has E|g|^2 = |G|^2 + tr(S)/n, with the true gradient G and the covariance
S of one sample's. Pieces of an update and their weighted sum give two such equations.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseParts:
    """Unbiased estimates; either may come out negative when there is little data.

    Attributes:
        variance: tr(S), the variance of one sample's gradient, all elements together.
        signal: |G|^2, the square of the true gradient's norm.
    """

    variance: float
    signal: float

    @property
    def noise_scale(self) -> float | None:
        """tr(S) / |G|^2 in samples; None where one of both is not positive."""
        if self.variance <= 0 or self.signal <= 0:
            return None
        return self.variance / self.signal


def noise_parts(*, local: float, total: float, per_piece: float, per_update: float) -> NoiseParts:
    """From the squares of one update, or of their means over several.

    With k equal pieces of b samples this is the usual pair: tr(S) = b k/(k-1) (local - total) and
    |G|^2 = (k total - local)/(k-1). Unequal pieces and weights have their place in the sums.

    Args:
        local: Sum over all pieces of w |g|^2, with g the mean gradient of a piece, w its weight.
        total: |sum of w g|^2.
        per_piece: Sum of w/n, with n the samples of a piece.
        per_update: Sum of w^2/n.

    Raises:
        ValueError: a single piece: there is no second equation.
    """
    if per_piece <= per_update:
        raise ValueError("the noise of a gradient shows between pieces, and there is one")
    variance = (local - total) / (per_piece - per_update)
    return NoiseParts(variance=variance, signal=total - per_update * variance)
