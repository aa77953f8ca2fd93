"""The largest size that something holds for, asked as rarely as possible (pure)."""

from __future__ import annotations

from collections.abc import Callable

LARGEST = 2**22
"""Beyond this no size is looked at: a workload that still fits there is not limited by memory."""
STEP = 0.02
"""How far from a good guess the other side is looked for first; a line through the peaks of two
sizes meets the limit to within some percent."""


def largest_that(
    holds: Callable[[int], bool],
    *,
    guess: int,
    smallest: int = 1,
    cap: int | None = None,
    within: float = 0.0,
) -> int | None:
    """The largest size that something holds for, if it holds for all smaller ones.

    Where it does not (a larger size may fit where a smaller one does not, by the way blocks fall),
    a size at the border that was found.

    Args:
        holds: Asked at most once for a size.
        guess: Where to begin.
        smallest: No size below is asked about.
        cap: No size above is asked about; None is `LARGEST`.
        within: Share of the answer by which a larger size may still do; 0 finds the border.

    Returns:
        None where it does not hold for the smallest size.
    """
    top = LARGEST if cap is None else min(cap, LARGEST)
    size = min(max(guess, smallest), top)
    low, high = smallest - 1, top + 1
    step = max(1, round(size * STEP))
    while high - low > max(1, within * low):
        if holds(size):
            low = size
        else:
            high = size
        if low < smallest:
            size, step = max(smallest, size - step), 2 * step
        elif high > top:
            size, step = min(top, size + step), 2 * step
        else:
            size = (low + high) // 2
    return low if low >= smallest else None
