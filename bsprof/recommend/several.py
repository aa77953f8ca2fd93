"""The best of several devices for one target: a comparison, and which of it to take."""

from __future__ import annotations

from bsprof.errors import UsageError
from bsprof.recommend.compared import Comparison
from bsprof.recommend.ranking import RankedBy
from bsprof.recommend.wording import listing
from bsprof.records import Objective
from bsprof.store.folder import device_slug


def best_of(comparison: Comparison, objective: Objective) -> int:
    """Index of the profile that answers a target best.

    The one with the fastest update; for `cost` with the cheapest sample, and for `memory` with the
    smallest peak. Profiles without an answer are passed over.

    Raises:
        UsageError: the cost of one that has an answer is not known.
        NoFeasibleBatch, MeasurementError: none has an answer.
    """
    comparison.raise_for_status()
    entries = comparison.profiles
    answered = [i for i, entry in enumerate(entries) if entry.plan is not None]
    if objective is Objective.COST:
        unpriced = [entries[i] for i in answered if entries[i].cost_per_million is None]
        if unpriced:
            raise UsageError(
                "the cheapest device cannot be told without prices and times",
                found=f"no cost of {listing([entry.label for entry in unpriced])}",
                next_step=f"add --price {device_slug(unpriced[0].profile.device)}=N, per hour and "
                "device",
            )
    if objective is Objective.MEMORY:
        return min(answered, key=lambda i: _peak(comparison, i))
    by = RankedBy.COST if objective is Objective.COST else RankedBy.TIME
    order = next((r.order for r in comparison.rankings if r.by is by), ())
    return next((i for i in order if i in answered), answered[0])


def _peak(comparison: Comparison, index: int) -> float:
    plan = comparison.profiles[index].plan
    used = None if plan is None else plan.device_used_bytes
    return float("inf") if used is None else used.high
