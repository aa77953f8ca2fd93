"""From measured times to a correction of predicted ones: the most plausible scale and constants.

A step is predicted to take max(s D, h H) + c: D seconds of the device, H of the host. s, h and c
are found where measured times and what is plausible beforehand agree best (maximum a posteriori),
so that one point moves what it shows and leaves the rest: a size that the host binds says nothing
of the device.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bsprof.predict.correction import Correction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MISFIT = 0.03
"""Standard deviation of the logarithm of a measured time around the corrected one: what is left of
kernels that do better or worse at one size than at another (assumed)."""
HOST_SPREAD = 0.6
"""Of the host's factor beforehand: 4 to 30 microseconds an operator are reported."""
CONSTANT_S = 0.002
"""Mean of what a step takes beside its operators, beforehand (exponential)."""
LEFT_OF_LAWS = 0.35
"""Of the spread of laws after a measurement on the same device: its sum is known then, and what
moves between classes as the size grows is not (assumed)."""
_NO_CONSTANT = -8.0
"""Logit of the share of the least measured time that the constant is, where there is none."""

ELSEWHERE = 0.6
"""Share of a correction, in logarithms, that another device is given: what laws get wrong they get
wrong on both, what this machine does only here (assumed)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One size, predicted and measured, in seconds.

    Attributes:
        device_s, host_s: As predicted.
        measured_s: Of the same part of an update.
    """

    device_s: float
    host_s: float
    measured_s: float


def correction_from(
    observations: Sequence[Observation],
    *,
    machine_spread: float,
    constant_s: float = CONSTANT_S,
    source: str = "",
) -> Correction:
    """The most plausible correction; its constant is of a micro-step.

    Args:
        observations: At least one.
        machine_spread: Of the device's factor beforehand, laws included.
        constant_s: Mean, beforehand, of what a step takes besides.
        source: Of the measurements, for the answer.

    Raises:
        ValueError: no observations.
    """
    if not observations:
        raise ValueError("a correction needs at least one measured size")
    import numpy as np
    from scipy.optimize import minimize

    least = min(o.measured_s for o in observations)

    def cost(given: NDArray[np.float64]) -> float:
        scale, host, share = map(float, given)
        constant = least * _logistic(share)
        total = (scale / machine_spread) ** 2 + (host / HOST_SPREAD) ** 2
        total += 2 * constant / constant_s
        for seen in observations:
            step = max(math.exp(scale) * seen.device_s, math.exp(host) * seen.host_s) + constant
            total += (math.log(seen.measured_s / step) / MISFIT) ** 2
        return float(total)

    starts = itertools.product((0.0,), (0.0, 0.8), (_NO_CONSTANT, 0.0))
    found = min(
        (
            minimize(
                cost,
                np.array(start),
                method="Nelder-Mead",
                options={"xatol": 1e-4, "fatol": 1e-4, "maxiter": 1500},
            )
            for start in starts
        ),
        key=lambda answer: float(answer.fun),
    )
    scale, host, share = map(float, found.x)
    corrected = Correction(
        scale=math.exp(scale),
        host_scale=math.exp(host),
        micro_step_s=least * _logistic(share),
        source=source,
    )
    return replace(
        corrected,
        law_share=LEFT_OF_LAWS,
        machine_spread=MISFIT if _shows_device(observations, corrected) else machine_spread,
        host_spread=MISFIT if _shows_host(observations, corrected) else None,
    )


def elsewhere(correction: Correction) -> Correction:
    """What a correction found on one device says of another: a part of its scale."""
    return Correction(
        scale=correction.scale**ELSEWHERE,
        optimizer_scale=correction.optimizer_scale**ELSEWHERE,
        source=correction.source,
    )


def _shows_device(observations: Sequence[Observation], found: Correction) -> bool:
    """Whether some size was bound by the device."""
    return any(found.scale * o.device_s > found.host_scale * o.host_s for o in observations)


def _shows_host(observations: Sequence[Observation], found: Correction) -> bool:
    """Whether some size was bound by the host."""
    return any(found.scale * o.device_s < found.host_scale * o.host_s for o in observations)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-max(-40.0, min(x, 40.0))))
