"""Predicted times in equally likely worlds: what of their uncertainty two sizes share. Pure Python.

See `bsprof.records.TimeWorlds`: entry i of all sizes belongs to one world.
"""

from __future__ import annotations

from collections.abc import Sequence

from bsprof.fit.samples import spread_of_outcomes
from bsprof.records.point import Point
from bsprof.records.quantity import Quantity


def micro_step_worlds(point: Point) -> Sequence[float]:
    """Predicted seconds of a micro-step in each world; empty where it was measured."""
    worlds = None if point.prediction is None else point.prediction.worlds
    return () if worlds is None else worlds.micro_step_s


def excess_per_sample(a: Point, b: Point) -> Quantity | None:
    """How much longer a micro-step of a takes per sample than one of b, as a share of b.

    None unless both were predicted in the same worlds.
    """
    rows = micro_step_worlds(a), micro_step_worlds(b)
    if not rows[0] or len(rows[0]) != len(rows[1]) or a.micro_step_s is None:
        return None
    if b.micro_step_s is None or b.micro_step_s.value <= 0 or min(rows[1]) <= 0:
        return None
    scale = b.micro_batch_size / a.micro_batch_size
    value = scale * a.micro_step_s.value / b.micro_step_s.value - 1
    return spread_of_outcomes(value, [scale * x / y - 1 for x, y in zip(*rows, strict=True)])


def probability(holds: Sequence[bool]) -> float:
    """How likely something is that holds in some of the worlds.

    Between the worlds at hand and certainty lies more than they can show: rule of succession.
    """
    return (sum(holds) + 1) / (len(holds) + 2)
