"""Coefficients of one machine, of which a source measured how fast it multiplies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bsprof.records.calibration import Calibration, Ceiling, DeviceCalibration

SPREAD = 0.03
"""Of a machine's largest product, measured once more (assumed)."""
LEFT_SPREAD = 0.08
"""1 sigma of log time between machines of one GPU whose largest products are known: memory, power
and libraries still differ (assumed)."""


def of_machine(
    calibration: Calibration, device: str, flops_per_s: Mapping[str, float]
) -> Calibration:
    """The coefficients with a machine's own ceilings for its device.

    Args:
        calibration: Of all devices.
        device: Name in the catalogue.
        flops_per_s: By compute type; empty changes nothing.
    """
    if not flops_per_s:
        return calibration
    own = calibration.devices.get(device, DeviceCalibration(device=device))
    measured = {
        compute: Ceiling(value=value, spread=SPREAD, measurements=1, source="this machine")
        for compute, value in flops_per_s.items()
    }
    machine = replace(own, flops_per_s={**own.flops_per_s, **measured}, machine_spread=LEFT_SPREAD)
    return replace(calibration, devices={**calibration.devices, device: machine})
