"""Takes the drift of a machine's speed out of samples (pure; see `bsprof.measure.pacer`)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def paced_samples(
    clocked_s: Sequence[float], pace_s: Sequence[float], usual_s: float | None = None
) -> list[float]:
    """Samples as they would have been at the usual pace: sample * usual / pace beside it.

    Args:
        clocked_s: Seconds as the clock showed them.
        pace_s: Seconds of the pacer beside each; empty leaves the samples as they are.
        usual_s: The pace to bring all to; None is the median of `pace_s`.
    """
    if not pace_s:
        return list(clocked_s)
    usual = statistics.median(pace_s) if usual_s is None else usual_s
    return [t * usual / p for t, p in zip(clocked_s, pace_s, strict=True)]
