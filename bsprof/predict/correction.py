"""What a measured profile says of a prediction: how much faster or slower this machine is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Applied to predicted times; the default changes nothing.

    Attributes:
        scale: Times the device's seconds.
        host_scale: Times the host's seconds.
        optimizer_scale: Times the optimizer step's seconds on the device, on top of `scale`.
        micro_step_s: Added to every micro-step, below whatever hides it.
        update_s: Added to every update.
        law_share: Of the spread of the laws of kernels, what is left.
        machine_spread, host_spread: Standard deviations of the logarithms of what is left of the
            machine's and the host's factor; None leaves the roofline's own.
        constant_spread: Standard deviation of the logarithm of `micro_step_s` and `update_s`,
            which are the same at all sizes of a world.
        source: Where it comes from, in words; empty where nothing was corrected.
    """

    scale: float = 1.0
    host_scale: float = 1.0
    optimizer_scale: float = 1.0
    micro_step_s: float = 0.0
    update_s: float = 0.0
    law_share: float = 1.0
    machine_spread: float | None = None
    host_spread: float | None = None
    constant_spread: float = 0.0
    source: str = ""


NO_CORRECTION = Correction()
