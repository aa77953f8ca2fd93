"""Which candidate wins: the fastest update, ties to the smaller micro-batch, memory respected.

The rule, for a set of sizes:

1. The fastest is the one with the least expected time per sample.
2. A size ties with it when the paired difference has a 90 % bound of at most 1 %. Among the tied
   the smallest wins; where a second piece size costs extra, equal pieces come before small ones.
   Noise never widens a tie: a size that is probably as fast, but not shown to be, does not win.
3. A size that was not measured wins only over measured ones that are slower by more than 1 % even
   at the near end of the interval.

For the objective `memory`, step 2 takes the smallest size at most `MEMORY_SLOWDOWN` slower than
the fastest. With one device, `cost` is `time`.

Which sizes may be used depends on the headroom, and more headroom must never give a larger
micro-batch. Memory needed is taken as the most of all sizes up to the one in question, so the
sizes that may be used are always the first n of all. The answer is the smallest of the answers
to the first n, n + 1, ... all sizes: a size that would win with even more memory at hand is as
fast as anything that fits, and it fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bsprof.fit.samples import TIE_SHARE
from bsprof.recommend.candidates import Candidate, Splitting
from bsprof.records import Objective

MEMORY_SLOWDOWN = 0.05
"""How much longer an update may take for less memory. Heuristic: 5 % buys a clearly smaller peak
on saturated curves; the smallest peak without any bound would always be a micro-batch of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The winner and what it was held against.

    Attributes:
        chosen: The winner.
        fastest: Least expected time per sample among those measured that fit; None where no time
            is known.
        undecided: A smaller one expected to tie with the winner, whose measurement is too noisy
            to show it; None when there is none.
        fitting: All candidates that fit, smallest first.
        too_large: Those that would not leave the headroom.
    """

    chosen: Candidate
    fastest: Candidate | None
    undecided: Candidate | None
    fitting: tuple[Candidate, ...]
    too_large: tuple[Candidate, ...]


def choose(
    splitting: Splitting,
    candidates: Sequence[Candidate],
    *,
    limit_bytes: float,
    objective: Objective,
) -> Choice | None:
    """The winner among candidates (one per size, smallest first); None when none fits the limit."""
    fitting = [c for c in candidates if c.ceiling_bytes <= limit_bytes]
    if not fitting:
        return None
    first = len(fitting)
    winners = [
        _winner(splitting, candidates[:count], objective)
        for count in range(first, len(candidates) + 1)
    ]
    chosen = min(winners, key=lambda c: c.micro_batch_size)
    return Choice(
        chosen=chosen,
        fastest=_fastest([c for c in fitting if not c.interpolated] or fitting),
        undecided=_undecided(splitting, fitting, chosen, objective),
        fitting=tuple(fitting),
        too_large=tuple(candidates[first:]),
    )


def _winner(
    splitting: Splitting, candidates: Sequence[Candidate], objective: Objective
) -> Candidate:
    measured = [c for c in candidates if not c.interpolated]
    if not measured:
        return _best(splitting, candidates, objective)
    best = _best(splitting, measured, objective)
    if objective is Objective.MEMORY:
        return best
    better = [c for c in candidates if c.interpolated and splitting.excess(best, c).low > TIE_SHARE]
    return _best(splitting, better, objective) if better else best


def _best(splitting: Splitting, candidates: Sequence[Candidate], objective: Objective) -> Candidate:
    fastest = _fastest(candidates)
    if objective is Objective.MEMORY:
        bound = fastest.seconds_per_sample * (1 + MEMORY_SLOWDOWN)
        return next(c for c in candidates if c.seconds_per_sample <= bound)
    one_shape_first = splitting.prefer_one_shape
    tied = [
        c
        for c in candidates
        if c is fastest
        or (
            (one_shape_first or c.micro_batch_size < fastest.micro_batch_size)
            and splitting.excess(c, fastest).high <= TIE_SHARE
        )
    ]
    return min(tied, key=lambda c: (one_shape_first and c.shapes > 1, c.micro_batch_size))


def _fastest(candidates: Sequence[Candidate]) -> Candidate:
    return min(candidates, key=lambda c: (c.seconds_per_sample, c.micro_batch_size))


def _undecided(
    splitting: Splitting, fitting: Sequence[Candidate], chosen: Candidate, objective: Objective
) -> Candidate | None:
    if objective is Objective.MEMORY:
        return None
    for candidate in fitting:
        if candidate.micro_batch_size >= chosen.micro_batch_size or candidate.interpolated:
            continue
        difference = splitting.excess(candidate, chosen)
        if difference.value <= TIE_SHARE < difference.high:
            return candidate
    return None
