"""A machine whose largest products were measured is priced by these, and others as before."""

from __future__ import annotations

import pytest

from bsprof.accounting.work import Work, WorkClass
from bsprof.hardware.calibration import shipped_calibration
from bsprof.hardware.catalogue import find_device
from bsprof.predict.roofline import Roofline
from bsprof.validate.time.machines import of_machine

SIZE = 8192
PRODUCT = Work(
    work_class=WorkClass.MATMUL,
    compute="fp16",
    flops=2 * SIZE**3,
    bytes=3 * 2 * SIZE**2,
    m=SIZE,
    n=SIZE,
    k=SIZE,
)
SUM = Work(work_class=WorkClass.ELEMENTWISE, compute="fp16", bytes=2**30)


@pytest.fixture
def device():
    return find_device("h100-80gb-sxm")


def test_half_the_rate_takes_products_about_twice_as_long_and_sums_as_long(device):
    shipped = shipped_calibration()
    before = Roofline.of(device, shipped)
    half = before.ceiling("fp16").value / 2
    after = Roofline.of(device, of_machine(shipped, device.name, {"fp16": half}))
    assert after.seconds(PRODUCT) / before.seconds(PRODUCT) == pytest.approx(2, rel=0.1)
    assert after.seconds(SUM) == before.seconds(SUM)
    assert after.machine_spread < before.machine_spread


def test_without_measurements_nothing_changes(device):
    shipped = shipped_calibration()
    assert of_machine(shipped, device.name, {}) is shipped
