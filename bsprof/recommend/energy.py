"""The energy of a plan, from the power that its micro-batch size was measured to take."""

from __future__ import annotations

from bsprof.recommend.candidates import Candidate
from bsprof.records import Point, Quantity


def plan_energy(point: Point | None, candidate: Candidate) -> Quantity | None:
    """Joules of an update over all ranks; None where the size's energy or time is not known.

    An update with accumulation of one was measured; micro-steps and optimizer step are taken to
    need the same power, so a plan's energy is to the measured one as its time. A last, smaller
    piece is taken to need that power as well, and so is every rank.
    """
    if point is None or point.energy_j is None or point.micro_step_s is None:
        return None
    if candidate.step_time_s is None:
        return None
    optimizer_s = point.optimizer_step_s.value if point.optimizer_step_s else 0.0
    measured_s = point.micro_step_s.value + optimizer_s
    ranks = sum(kind.ranks for kind in candidate.pieces)
    return point.energy_j.scaled(ranks * candidate.step_time_s.value / measured_s)
