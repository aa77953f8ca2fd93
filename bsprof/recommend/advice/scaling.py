"""Rules that carry hyperparameters from one batch to another. Pure arithmetic.

kappa is the new effective batch over the one that the hyperparameters were tuned at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FASTEST_BETA = 0.0
"""Where scaling 1 - beta would make beta negative it is held here: nothing is averaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Betas:
    """Adam's averages after a change of batch.

    Attributes:
        beta1, beta2: As scaled.
        clamped: Whether kappa * (1 - beta) reached 1, where the rule no longer holds.
    """

    beta1: float
    beta2: float
    clamped: bool


def sgd_gain(kappa: float, current_batch: int, noise_scale: float | None) -> float:
    """Factor on SGD's learning rate.

    Without a noise scale kappa. With one, (v + s) / (v / kappa + s) where v = tr(Sigma) / B0 and
    s = |G|^2: kappa where noise dominates, 1 where it does not (AdaScale).
    """
    if noise_scale is None:
        return kappa
    ratio = noise_scale / current_batch  # v / s
    return (ratio + 1) / (ratio / kappa + 1)


def adam_gain(kappa: float, current_batch: int, noise_scale: float | None) -> float:
    """Factor on Adam's learning rate: the square root of SGD's."""
    return math.sqrt(sgd_gain(kappa, current_batch, noise_scale))


def scaled_betas(beta1: float, beta2: float, kappa: float) -> Betas:
    """1 - beta times kappa, held at `FASTEST_BETA`."""
    scaled = [1 - kappa * (1 - beta) for beta in (beta1, beta2)]
    return Betas(
        beta1=max(FASTEST_BETA, scaled[0]),
        beta2=max(FASTEST_BETA, scaled[1]),
        clamped=min(scaled) <= 0,
    )


def same_half_life(beta2: float, kappa: float) -> float:
    """beta2 that keeps the half-life of the average in samples (or tokens): beta2 ** kappa."""
    return float(beta2**kappa)


def least_warmup(beta2: float) -> int:
    """Optimizer steps of warm-up that Adam wants at least: 2 / (1 - beta2)."""
    return math.ceil(round(2 / (1 - beta2), 6)) if beta2 < 1 else 0


def same_horizon(momentum: float, pieces: int) -> float:
    """Batch-norm momentum per piece that averages over as many updates as `momentum` did.

    Running statistics are updated once per piece: (1 - m') ** pieces = 1 - m.
    """
    return float(1 - (1 - momentum) ** (1 / pieces))
