"""Coefficients made by hand, so that predictions need no fitted file."""

from __future__ import annotations

import pytest

from bsprof.records.calibration import (
    Calibration,
    CeilingLaw,
    Coefficient,
    FamilyCalibration,
    HostCalibration,
    Spreads,
)


def _number(value: float) -> Coefficient:
    return Coefficient(value=value, error=0.1 * value)


@pytest.fixture
def calibration() -> Calibration:
    """Plain shares of the data sheet everywhere."""
    everywhere = FamilyCalibration(
        laws={}, ceiling_factors={}, bandwidth_share=_number(0.85), launch_s=_number(2e-6)
    )
    ceiling = CeilingLaw(share=_number(0.8), half_density=_number(1e13), deviation=0.05)
    known = {"": 0.1}
    return Calibration(
        schema=1,
        families={"": everywhere},
        devices={},
        ceilings=dict.fromkeys(("half", "tf32", "fp32"), ceiling),
        host=HostCalibration(
            host_call_s=_number(8e-6), host_backward_call_s=_number(4e-6), step_s=_number(1e-4)
        ),
        spreads=Spreads(measured=known, unmeasured=known, foreign=known, machine=0.05),
    )
