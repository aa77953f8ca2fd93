"""Whether a trace is the network that was measured: its multiplications against published ones."""

from __future__ import annotations

from bsprof.accounting.work import WorkClass
from bsprof.predict.cost import Part
from bsprof.validate.time.cases import TimeCase

TOLERANCE = 0.02
"""Share that they may differ by."""
ROUNDING = 0.0051
"""Tables have two digits behind the point."""

NORM_COUNT = 2
"""What tables count for each number that batch norm makes (fvcore's rule)."""

_ATTENTION = frozenset({WorkClass.ATTENTION_FORWARD, WorkClass.BATCHED_MATMUL})
"""What tables that follow modules do not see."""


def gmacs_of(forward: Part, micro_batch: int) -> tuple[float, ...]:
    """Multiplications of one sample in 10^9, as tables count them.

    All products, those outside attention, and both with what batch norms are counted as.
    """
    total = outside = norms = 0.0
    for work, count in forward:
        share = count / micro_batch / 1e9
        macs = share * work.model_flops / 2
        total += macs
        if work.work_class not in _ATTENTION:
            outside += macs
        if work.work_class is WorkClass.NORMALISATION and "batch_norm" in work.name:
            norms += NORM_COUNT * share * work.rows * work.columns
    return total, outside, total + norms, outside + norms


def other_network(case: TimeCase, forward: Part) -> str | None:
    """Why a trace is not of the network that was measured; None where it is, or none is known."""
    if not case.published_gmacs:
        return None
    counted = gmacs_of(forward, case.micro_batch)
    for published in case.published_gmacs:
        allowed = TOLERANCE * published + ROUNDING
        if any(abs(found - published) <= allowed for found in counted):
            return None
    return "another network: its multiplications differ by more than 2 % from published ones"
