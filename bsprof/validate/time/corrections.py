"""What measured rows tell about others: the host's time per kernel, or one point of a sweep."""

from __future__ import annotations

import math
from dataclasses import replace

from bsprof.predict.correction import Correction
from bsprof.predict.timing import TimePrediction
from bsprof.predict.transfer import CONSTANT_S, Observation, correction_from
from bsprof.records import Quantity
from bsprof.validate.time.cases import Calibrates, TimeCase, TimeQuantity

HOST_SPREAD = 0.03
"""Of the host's seconds where they were measured: what repeats of a launch-bound run differ by."""
FRAMEWORK_SPREAD = 0.15
"""1 sigma of the logarithm of what a framework adds to a step, between sizes: it is the host's, and
some of it hides behind the device. Steps of NeuMF under AdaptDL, of which the device has next to
nothing to do, differ by 8 to 15 % from size to size on three GPUs."""
_Z90 = 1.645


def correction_of(case: TimeCase, prediction: TimePrediction) -> Correction:
    """The correction that a calibrating row gives to those that share its sweep or machine.

    Args:
        case: The row.
        prediction: Of it, without a correction.
    """
    if case.calibrates is Calibrates.HOST:
        forward = case.quantity is TimeQuantity.FORWARD
        part = prediction.forward if forward else prediction.micro_step
        return Correction(
            host_scale=case.seconds / part.host_s,
            host_spread=HOST_SPREAD,
            source=f"the host's time per kernel from {case.row}",
        )
    return _of_point(case, prediction)


def shared_by(case: TimeCase) -> str:
    """What rows have in common that one calibrating row corrects."""
    return case.machine if case.calibrates is Calibrates.HOST else case.sweep


def _of_point(case: TimeCase, prediction: TimePrediction) -> Correction:
    """What one measured update says, as a measured profile of one size would.

    One point cannot tell a framework's constant from a slower device: where a framework is known
    to add one, it is what is left, and the device is as uncertain as before.
    """
    parts = (prediction.micro_step, prediction.optimizer)
    found = correction_from(
        [
            Observation(
                device_s=sum(part.device_s for part in parts),
                host_s=sum(part.host_s for part in parts),
                measured_s=case.seconds,
            )
        ],
        machine_spread=_spread(prediction.update_s),
        constant_s=case.framework_s or CONSTANT_S,
        source=f"one measured point, {case.row}",
    )
    if not case.framework_s:
        return found
    return replace(found, law_share=1.0, machine_spread=None, constant_spread=FRAMEWORK_SPREAD)


def _spread(quantity: Quantity) -> float:
    """Standard deviation of the logarithm behind a 90 % interval."""
    return math.log(quantity.high / quantity.low) / (2 * _Z90)
