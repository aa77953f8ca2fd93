"""Ceilings: measured where they were, else the data sheet's times what is typical."""

import dataclasses

import pytest

from bsprof.hardware.catalogue import find_device
from bsprof.predict.roofline.ceilings import bandwidth_ceiling, compute_ceiling, launch_floor
from bsprof.records.calibration import Coefficient

A100, RTX_4090, V100 = "a100-80gb-sxm", "rtx-4090", "v100-16gb-sxm"


def test_a_measured_ceiling_is_taken(calibration):
    found = compute_ceiling(find_device(A100), "bf16", calibration)
    assert (found.value, found.measurements) == (260e12, 3)


def test_an_unmeasured_one_is_the_data_sheet_s_at_its_power(calibration):
    device = find_device(RTX_4090)
    found = compute_ceiling(device, "bf16", calibration)
    density = device.flops_per_s["bf16"] / device.power_w
    assert found.value == pytest.approx(device.flops_per_s["bf16"] / (1 + density / 2e12))
    assert found.measurements == 0
    assert "data sheet" in found.source


def test_more_multipliers_on_the_same_power_reach_a_smaller_share(calibration):
    device = find_device(RTX_4090)
    crowded = dataclasses.replace(device, power_w=device.power_w / 2)
    rates = [compute_ceiling(d, "bf16", calibration).value for d in (device, crowded)]
    assert rates[1] < rates[0]


def test_a_family_s_factor_is_used_by_its_relatives(calibration):
    ampere = dataclasses.replace(
        calibration.families["ampere"], ceiling_factors={"half": Coefficient(value=1.2, error=0.1)}
    )
    known = dataclasses.replace(calibration, families={**calibration.families, "ampere": ampere})
    device = find_device(RTX_4090)
    plain = compute_ceiling(device, "bf16", calibration).value
    assert compute_ceiling(device, "bf16", known).value == pytest.approx(1.2 * plain)


def test_types_that_a_device_lacks(calibration):
    device = find_device(V100)
    single = compute_ceiling(device, "fp32", calibration).value
    assert compute_ceiling(device, "tf32", calibration).value == pytest.approx(single)
    assert compute_ceiling(device, "bf16", calibration).value < single  # emulated
    assert compute_ceiling(device, "fp64", calibration).value == pytest.approx(single / 2)
    small = compute_ceiling(find_device(RTX_4090), "fp64", calibration)
    assert small.value < 0.05 * compute_ceiling(find_device(RTX_4090), "fp32", calibration).value


def test_bandwidth(calibration):
    assert bandwidth_ceiling(find_device(A100), calibration).value == 1.75e12
    assert bandwidth_ceiling(find_device(RTX_4090), calibration).value == pytest.approx(
        0.8 * 1008e9
    )


def test_nothing_known_is_said_to_be_a_guess(calibration):
    unknown = dataclasses.replace(calibration, families={}, ceilings={})
    device = find_device(RTX_4090)
    assert "guess" in compute_ceiling(device, "bf16", unknown).source
    assert "guess" in bandwidth_ceiling(device, unknown).source
    assert launch_floor(device, unknown).value > 0
