"""Which candidate wins where only memory is known: the fewest micro-steps that fit.

Nothing here says that the winner is the fastest. Among plans whose upper end of memory leaves the
headroom, the one with the fewest micro-steps per update wins; of those with as few, the one with
fewer piece sizes, then the smaller micro-batch, which needs less memory for the same.

For the objective `memory` only those whose upper end is within `SAME_MEMORY` of the least are
looked at: below the size at which activations begin to matter, memory is the same for all.

More headroom never gives a larger micro-batch: the plans that fit are the first n of all, and a
winner among more of them is either the same or a larger one.
"""

from __future__ import annotations

from collections.abc import Sequence

from bsprof.recommend.candidates import Candidate
from bsprof.recommend.choose import Choice
from bsprof.records import Objective

SAME_MEMORY = 0.02
"""Peaks that differ by less are the same. Heuristic: an allocator hands memory out in blocks of up
to 20 MiB, a few percent of what a small model uses."""


def choose_by_steps(
    candidates: Sequence[Candidate], *, limit_bytes: float, objective: Objective
) -> Choice | None:
    """The winner among candidates (one per size, smallest first); None when none fits the limit."""
    fitting = [c for c in candidates if c.ceiling_bytes <= limit_bytes]
    if not fitting:
        return None
    allowed = fitting
    if objective is Objective.MEMORY:
        least = fitting[0].ceiling_bytes  # it never falls as the size grows
        allowed = [c for c in fitting if c.ceiling_bytes <= least * (1 + SAME_MEMORY)]
    return Choice(
        chosen=min(allowed, key=lambda c: c.effort),
        fastest=None,
        undecided=None,
        fitting=tuple(fitting),
        too_large=tuple(candidates[len(fitting) :]),
    )
