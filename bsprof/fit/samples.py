"""Medians of raw samples and differences between them, with 90 % intervals. Pure Python.

Nothing here assumes a distribution once there are `DISTRIBUTION_FREE_FROM` samples; timing
samples are skewed to the right and have outliers, so means and standard deviations mislead.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from bsprof.fit.student import t_quantile
from bsprof.records.quantity import Quantity

LEVEL = 0.90
TIE_SHARE = 0.01
"""Two sizes are tied when the 90 % bound of their paired difference in time is at most this."""
PAIRED_FROM = 5
"""Samples on each side from which they are paired one by one."""
DISTRIBUTION_FREE_FROM = 5  # the range of 5 samples holds the median with probability 0.9375
MIN_SAMPLES_TO_STOP = 3  # two equal samples say little about a clock
# Half width of a single sample's interval, as a share of it. Heuristic: blocks of steps on a
# shared machine rarely differ by more, and the width says plainly that one sample is no evidence.
SINGLE_SAMPLE_SHARE = 0.25
_EXACT_RANKS_TO = 200  # above, the normal form of the ranks is exact to a hundredth of a rank
_Z90 = 1.6448536269514722  # of the normal distribution, at 0.5 + LEVEL / 2
_SERIAL_FROM = 8  # fewer samples cannot show a serial correlation


def median_quantity(samples: Sequence[float]) -> Quantity:
    """The median of samples with its 90 % interval, in the samples' unit.

    From five samples on: the interval between order statistics, with the ranks interpolated so
    that it covers 90 % and not more (Hettmansperger and Sheather 1986, "Confidence intervals
    based on interpolated order statistics"; nearly distribution-free). Two to four samples:
    Student's t around the median, from the samples' own standard deviation, which is wide on
    purpose. One sample: plus and minus `SINGLE_SAMPLE_SHARE`. Samples whose neighbours resemble
    each other (a drift, another load on the machine) carry less than their number says: the
    interval is widened by sqrt((1 + r) / (1 - r)) when the serial correlation r of their ranks is
    significant. The order of the samples is therefore the order in which they were taken.

    Raises:
        ValueError: no samples, or one that is not finite.
    """
    if not samples:
        raise ValueError("a median needs at least one sample")
    if not all(map(math.isfinite, samples)):
        raise ValueError("samples must be finite")
    ordered = sorted(samples)
    n = len(ordered)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    if n == 1:
        margin = abs(median) * SINGLE_SAMPLE_SHARE
        return Quantity.ordered(median, median - margin, median + margin)
    if n < DISTRIBUTION_FREE_FROM:
        mean = math.fsum(ordered) / n
        deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in ordered) / (n - 1))
        margin = t_quantile(0.5 + LEVEL / 2, n - 1) * deviation * _MEDIAN_OVER_MEAN[n]
        margin /= math.sqrt(n)
        return Quantity.ordered(median, median - margin, median + margin)
    position = _lower_rank(n)
    low = _at_rank(ordered, position)
    high = _at_rank(ordered, n + 1 - position)
    widening = _serial_widening(samples)
    return Quantity.ordered(
        median, median - (median - low) * widening, median + (high - median) * widening
    )


def is_precise_enough(samples: Sequence[float], *, relative_error: float) -> bool:
    """Whether the median's 90 % interval is within plus and minus `relative_error` (0 to 1).

    False below `MIN_SAMPLES_TO_STOP` samples, whatever their values.
    """
    if len(samples) < MIN_SAMPLES_TO_STOP:
        return False
    return median_quantity(samples).relative_width / 2 <= relative_error


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Quantity:
    """How much longer a takes than b, as a share of b, with its 90 % interval.

    0.02 means that a takes 2 % longer. Sequences of one length are paired by index: sample i of
    both belongs to the same round, so what slowed a whole round cancels (for samples that were
    not taken in rounds the pairing is arbitrary and still valid). Sequences of different lengths
    are compared by their medians as if independent.

    Raises:
        ValueError: no samples, or one that is not above zero.
    """
    if not a or not b or min(a) <= 0 or min(b) <= 0:
        raise ValueError("a difference needs samples above zero on both sides")
    if len(a) == len(b) and len(a) > 1:
        ratio = median_quantity([x / y for x, y in zip(a, b, strict=True)])
        return Quantity(value=ratio.value - 1, low=ratio.low - 1, high=ratio.high - 1)
    return relative_difference(median_quantity(a), median_quantity(b))


def relative_difference(a: Quantity, b: Quantity) -> Quantity:
    """a / b - 1 with its 90 % interval, for two independent quantities above zero.

    Raises:
        ValueError: a value that is not above zero.
    """
    if a.value <= 0 or b.value <= 0:
        raise ValueError("a relative difference needs quantities above zero")
    ratio = a.value / b.value
    down = math.hypot((a.value - a.low) / a.value, (b.high - b.value) / b.value)
    up = math.hypot((a.high - a.value) / a.value, (b.value - b.low) / b.value)
    # Wide intervals: no further than both ends at their worst.
    low = max(ratio * (1 - down), a.low / b.high)
    high = min(ratio * (1 + up), a.high / b.low) if b.low > 0 else ratio * (1 + up)
    return Quantity.ordered(ratio - 1, low - 1, high - 1)


def spread_of_outcomes(value: float, outcomes: Sequence[float]) -> Quantity:
    """A value with the 5th and 95th percentile of what it is in equally likely worlds."""
    return Quantity.ordered(value, percentile(outcomes, 0.05), percentile(outcomes, 0.95))


def percentile(outcomes: Sequence[float], share: float) -> float:
    """The value below which a share (0 to 1) of outcomes lies, between two of them in proportion.

    Raises:
        ValueError: no outcomes.
    """
    if not outcomes:
        raise ValueError("a percentile needs at least one outcome")
    ordered = sorted(outcomes)
    place = share * len(ordered) - 0.5
    below = min(max(math.floor(place), 0), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    part = min(max(place - below, 0.0), 1.0)
    return ordered[below] + part * (ordered[above] - ordered[below])


def _lower_rank(n: int) -> float:
    """Rank, counted from 1 and interpolated, of the lower end of the 90 % interval."""
    if n > _EXACT_RANKS_TO:
        return (n + 1) / 2 - _Z90 * math.sqrt(n) / 2
    total, below = 1 << n, 1
    rank, coverage = 1, 1 - 2 / total
    while True:
        below += math.comb(n, rank)
        next_coverage = 1 - 2 * below / total
        if next_coverage < LEVEL:
            break
        rank, coverage = rank + 1, next_coverage
    share = (coverage - LEVEL) / (coverage - next_coverage)
    return rank + (n - rank) * share / (rank + (n - 2 * rank) * share)


def _at_rank(ordered: Sequence[float], rank: float) -> float:
    index = int(rank)
    low = ordered[index - 1]
    high = ordered[min(index, len(ordered) - 1)]
    return low + (rank - index) * (high - low)


def _serial_widening(samples: Sequence[float]) -> float:
    """Factor of at least 1 by which serial correlation widens the interval of a median."""
    n = len(samples)
    if n < _SERIAL_FROM:
        return 1.0
    order = sorted(range(n), key=samples.__getitem__)
    ranks = [0.0] * n
    for rank, index in enumerate(order):
        ranks[index] = rank - (n - 1) / 2
    energy = sum(rank * rank for rank in ranks)
    correlation = sum(x * y for x, y in itertools.pairwise(ranks)) / energy
    if correlation * math.sqrt(n) < _Z90:  # not told from zero: widening would only add noise
        return 1.0
    correlation = min(correlation, 0.9)
    return math.sqrt((1 + correlation) / (1 - correlation))


# Standard error of the median of n normal samples over that of their mean, for n < 5.
_MEDIAN_OVER_MEAN = {2: 1.0, 3: 1.160, 4: 1.092}
