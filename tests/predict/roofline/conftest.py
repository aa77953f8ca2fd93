"""A small calibration made by hand."""

import pytest

from bsprof.predict.roofline.groups import LAWS
from bsprof.records.calibration import (
    CALIBRATION_SCHEMA,
    Calibration,
    Ceiling,
    CeilingLaw,
    Coefficient,
    DeviceCalibration,
    FamilyCalibration,
    HostCalibration,
    LawTerms,
    Spreads,
)


def terms(law: str, rows: int = 0, devices: tuple[str, ...] = (), **values: float) -> LawTerms:
    defaults = {name: term.default for name, term in LAWS[law].terms.items()}
    return LawTerms(
        terms={
            name: Coefficient(value=value, error=0.1 * value)
            for name, value in (defaults | values).items()
        },
        rows=rows,
        devices=devices,
    )


def family(bandwidth_share: float = 0.9, **laws: LawTerms) -> FamilyCalibration:
    return FamilyCalibration(
        laws={name.replace("__", "/"): law for name, law in laws.items()},
        ceiling_factors={},
        bandwidth_share=Coefficient(value=bandwidth_share, error=0.05),
        launch_s=Coefficient(value=2e-6, error=4e-7),
    )


@pytest.fixture
def calibration() -> Calibration:
    """Root, Ampere measured on an A100, and Ada with no law of its own."""
    return Calibration(
        schema=CALIBRATION_SCHEMA,
        families={
            "": family(matmul__half=terms("matmul/half"), elementwise=terms("elementwise")),
            "ampere": family(
                matmul__half=terms("matmul/half", 100, ("a100-80gb-sxm",), share=0.9),
                elementwise=terms("elementwise", 50, ("a100-80gb-sxm",), share=0.95),
            ),
            "ada": family(bandwidth_share=0.8),
        },
        devices={
            "a100-80gb-sxm": DeviceCalibration(
                device="a100-80gb-sxm",
                flops_per_s={
                    "bf16": Ceiling(value=260e12, spread=0.05, measurements=3, source="three")
                },
                bandwidth_bytes_per_s=Ceiling(
                    value=1.75e12, spread=0.05, measurements=2, source="two"
                ),
            )
        },
        ceilings={
            "half": CeilingLaw(
                share=Coefficient(value=1.0),
                half_density=Coefficient(value=2e12),
                deviation=0.1,
            )
        },
        host=HostCalibration(
            host_call_s=Coefficient(value=1e-5, error=5e-6),
            host_backward_call_s=Coefficient(value=8e-6, error=5e-6),
            step_s=Coefficient(value=3e-4, error=3e-4),
        ),
        spreads=Spreads(
            measured={"matmul/half": 0.06, "elementwise": 0.05},
            unmeasured={"matmul/half": 0.12, "elementwise": 0.1},
            foreign={"matmul/half": 0.3, "elementwise": 0.2},
            machine=0.1,
        ),
    )
