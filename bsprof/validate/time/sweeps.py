"""Scores of sweeps: whether sizes are ranked as measured, and where throughput stops to pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEAST_SIZES = 3
KNEE_SHARE = 0.9
"""Of the top throughput, reached at the knee."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepScore:
    """How a predicted sweep lies to the measured one.

    Attributes:
        sizes: How many.
        rank: Rank correlation (Spearman) of predicted with measured throughput over sizes.
        knee_steps: Grid steps from the measured size that reaches 90 % of the top throughput to
            the predicted one; below zero where the predicted one is smaller.
    """

    sizes: int
    rank: float
    knee_steps: int


def sweep_score(points: Sequence[tuple[int, float, float]]) -> SweepScore | None:
    """The score of a sweep; None with fewer than three sizes.

    Args:
        points: Size, predicted seconds and measured seconds; each size once.
    """
    if len(points) < LEAST_SIZES:
        return None
    ordered = sorted(points)
    predicted = [size / seconds for size, seconds, _ in ordered]
    measured = [size / seconds for size, _, seconds in ordered]
    return SweepScore(
        sizes=len(points),
        rank=rank_correlation(predicted, measured),
        knee_steps=_knee(predicted) - _knee(measured),
    )


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's coefficient, ties at their mean rank; 0 where one of them is constant."""
    ranks_a, ranks_b = _ranks(a), _ranks(b)
    mean = (len(a) + 1) / 2
    between = sum((x - mean) * (y - mean) for x, y in zip(ranks_a, ranks_b, strict=True))
    within = [sum((x - mean) ** 2 for x in ranks) for ranks in (ranks_a, ranks_b)]
    product: float = (within[0] * within[1]) ** 0.5
    return between / product if product else 0.0


def _knee(throughput: Sequence[float]) -> int:
    """Place of the first size that reaches the share of the top."""
    least = KNEE_SHARE * max(throughput)
    return next(n for n, rate in enumerate(throughput) if rate >= least)


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(v) + 1 + (ordered.count(v) - 1) / 2 for v in values]
