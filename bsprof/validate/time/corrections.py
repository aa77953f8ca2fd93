"""What measured rows tell about others: the host's time per kernel, or one point of a sweep."""

from __future__ import annotations

from bsprof.predict.correction import Correction
from bsprof.predict.timing import TimePrediction
from bsprof.validate.time.cases import Calibrates, TimeCase, TimeQuantity

HOST_SPREAD = 0.03
"""Of the host's seconds where they were measured: what repeats of a launch-bound run differ by."""


def correction_of(case: TimeCase, prediction: TimePrediction) -> Correction:
    """The correction that a calibrating row gives to those that share its sweep or machine.

    Args:
        case: The row.
        prediction: Of it, without a correction.
    """
    part = prediction.forward if case.quantity is TimeQuantity.FORWARD else prediction.micro_step
    if case.calibrates is Calibrates.HOST:
        return Correction(
            host_scale=case.seconds / part.host_s,
            host_spread=HOST_SPREAD,
            source=f"the host's time per kernel from {case.row}",
        )
    predicted = prediction.update_of(case.accumulation_steps).value
    left = case.seconds - predicted
    if left >= 0:  # what a framework adds to every step does not depend on the size
        return Correction(update_s=left, source=f"the constant of a step from {case.row}")
    return Correction(scale=case.seconds / predicted, source=f"the scale from {case.row}")


def shared_by(case: TimeCase) -> str:
    """What rows have in common that one calibrating row corrects."""
    return case.machine if case.calibrates is Calibrates.HOST else case.sweep
