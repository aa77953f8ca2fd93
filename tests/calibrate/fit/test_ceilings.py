"""Ceilings from maxima, and what to expect of devices without."""

import math

import pytest

from bsprof.accounting.work import WorkClass
from bsprof.calibrate.fit.ceilings import (
    LEAST_SPREAD,
    SINGLE_SPREAD,
    Maximum,
    ceiling_laws,
    ceilings,
    kernel_maxima,
)
from bsprof.calibrate.fit.rows import KernelRow
from bsprof.calibrate.fit.works import product, traffic
from bsprof.hardware.catalogue import devices

DEVICES = {device.name: device for device in devices()}


def maximum(device: str, rate: float, source: str, compute: str = "bf16") -> Maximum:
    return Maximum(device=device, compute=compute, rate=rate, source=source)


def test_the_median_over_sources_not_over_figures():
    found = ceilings(
        [
            *[maximum("rtx-4090", 150e12, "one")] * 5,
            maximum("rtx-4090", 160e12, "two"),
            maximum("rtx-4090", 170e12, "three"),
        ],
        DEVICES,
    )["rtx-4090"]
    assert found["bf16"].value == pytest.approx(160e12)
    assert found["bf16"].measurements == 3
    assert found["bf16"].source == "one; three; two"


def test_both_half_types_share_their_measurements():
    found = ceilings([maximum("rtx-4090", 150e12, "one", "fp16")], DEVICES)["rtx-4090"]
    assert found["bf16"].value == found["fp16"].value == pytest.approx(150e12)
    assert found["bf16"].spread == SINGLE_SPREAD


def test_a_type_that_is_emulated_has_no_ceiling():
    found = ceilings([maximum("v100-16gb-sxm", 95e12, "one", "fp16")], DEVICES)["v100-16gb-sxm"]
    assert set(found) == {"fp16"}


def test_sources_that_agree_still_leave_the_spread_between_cards():
    found = ceilings([maximum("l4", 90e12, name) for name in "abc"], DEVICES)["l4"]
    assert found["bf16"].spread == LEAST_SPREAD


def test_only_large_kernels_tell_a_ceiling():
    def row(work):
        return KernelRow(work=work, seconds=1e-3, device="l40", source="s")

    rows = [
        row(product(128, 128, 128, "bf16")),
        row(product(4096, 4096, 4096, "bf16")),
        row(traffic(WorkClass.ELEMENTWISE, 10**8, "fp32")),  # within three caches of 96 MiB
        row(traffic(WorkClass.ELEMENTWISE, 8 * 10**8, "fp32")),
    ]
    found = {(m.compute, m.rate) for m in kernel_maxima(rows, DEVICES)}
    assert found == {("bf16", 2 * 4096**3 / 1e-3), ("", 8 * 10**8 / 1e-3)}


def test_shares_fall_with_density_and_families_differ():
    names = [n for n, d in DEVICES.items() if d.kind == "cuda" and d.power_w]
    known = {}
    for name in names:
        device = DEVICES[name]
        sheet = device.flops_per_s.get("fp16")
        if sheet is None:
            continue
        share = 1.05 / (1 + sheet / device.power_w / 3e12)
        factor = 0.8 if device.architecture == "volta" else 1.0
        known |= ceilings([maximum(name, factor * share * sheet, "s", "fp16")], DEVICES)
    laws, factors = ceiling_laws(known, DEVICES)
    law = laws["half"]
    assert law.share.value == pytest.approx(1.05, rel=0.1)
    assert law.half_density.value == pytest.approx(3e12, rel=0.3)
    assert 0.78 < factors["volta"]["half"].value < 0.93
    assert factors["ampere"]["half"].value == pytest.approx(1.0, abs=0.05)
    assert law.deviation < 0.06
    assert math.isfinite(law.half_density.error)
