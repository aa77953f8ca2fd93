"""Student's t distribution for whole degrees of freedom, in pure Python."""

from __future__ import annotations

import math

_LARGE = 400  # beyond this the finite sum is slow and the normal distribution is as good


def t_cdf(t: float, degrees_of_freedom: int) -> float:
    """Probability that a Student variable is at most t.

    Finite trigonometric sums of Abramowitz and Stegun, 26.7.3 and 26.7.4.

    Raises:
        ValueError: fewer than one degree of freedom.
    """
    if degrees_of_freedom < 1:
        raise ValueError(f"degrees of freedom must be at least 1, not {degrees_of_freedom}")
    if degrees_of_freedom > _LARGE:
        return 0.5 * math.erfc(-t / math.sqrt(2))
    theta = math.atan2(t, math.sqrt(degrees_of_freedom))
    sine, cosine = math.sin(theta), math.cos(theta)
    odd = degrees_of_freedom % 2
    term = cosine if odd else 1.0
    total = term if degrees_of_freedom > 1 else 0.0
    for k in range(2 + odd, degrees_of_freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    inside = 2 / math.pi * (theta + sine * total) if odd else sine * total
    return 0.5 + 0.5 * inside


def t_quantile(probability: float, degrees_of_freedom: int) -> float:
    """The t that a Student variable stays below with the given probability.

    Raises:
        ValueError: fewer than one degree of freedom, or a probability outside 0 to 1.
    """
    if not 0 < probability < 1:
        raise ValueError(f"a probability lies between 0 and 1, not {probability}")
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees_of_freedom)
    low, high = 0.0, 1.0
    while t_cdf(high, degrees_of_freedom) < probability and high < 1e15:
        low, high = high, high * 2
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if t_cdf(middle, degrees_of_freedom) < probability:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
