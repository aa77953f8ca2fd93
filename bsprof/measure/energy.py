"""What an update takes from the device's energy counter, where there is one (worker side).

Timed blocks last milliseconds and the counter moves some ten times a second, so energy has a
window of its own: whole updates, queued one after the other, for `WINDOW_S`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bsprof.measure.devices.protocol import Device
from bsprof.measure.raw import EnergyWindow
from bsprof.workloads.training import Training

WINDOW_S = 1.0
"""Long against the 20 to 100 ms between two readings of the counter. Heuristic: the energy is then
known to within a tenth, for a second per size."""


def energy_window(
    training: Training, device: Device, batch: Any, on_step: Callable[[], None]
) -> EnergyWindow | None:
    """Runs whole updates of one batch between two readings of the counter.

    Args:
        training: The built workload.
        device: Where it lives.
        batch: Of the size in question.
        on_step: Called before each micro-step (the worker's heartbeat).

    Returns:
        None where nothing counts energy (then nothing is run), where the second reading was
        refused, and where the counter stood still or began anew.
    """
    device.synchronize()
    before, start = device.energy_j(), time.perf_counter()
    if before is None:
        return None
    updates = 0
    while time.perf_counter() - start < WINDOW_S:
        on_step()
        training.micro_step(batch, 1.0)
        training.optimizer_step()
        training.zero_grad()
        device.synchronize()  # else a host that runs ahead would queue many windows' worth
        updates += 1
    after, seconds = device.energy_j(), time.perf_counter() - start
    if after is None or after <= before:
        return None
    return EnergyWindow(joules=after - before, seconds=seconds, updates=updates)
