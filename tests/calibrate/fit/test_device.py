"""One device's calibration from its own rows."""

import dataclasses

import pytest
from made_kernels import PRODUCTS, STREAMS, facts, made_rows

from bsprof.calibrate.fit import fit_device
from bsprof.errors import FitError
from bsprof.hardware.calibration import packaged_calibration, with_device
from bsprof.hardware.catalogue import find_device
from bsprof.predict.roofline import Roofline
from bsprof.records.calibration import Coefficient

DEVICE = find_device("rtx-4090")


@pytest.fixture
def rows():
    device = facts("ada", flops_per_s=150e12)
    return made_rows(PRODUCTS, "x", device, depth=120.0) + made_rows(STREAMS, "x", device)


def test_its_roofline_gives_its_rows(rows):
    base = packaged_calibration()
    found = fit_device(rows, base, DEVICE, launch_s=Coefficient(value=2e-6, error=1e-7))
    roofline = Roofline.of(DEVICE, with_device(base, found), isolated=True)
    errors = sorted(abs(roofline.seconds(row.work) / row.seconds - 1) for row in rows)
    assert errors[len(errors) // 2] < 0.08
    plain = Roofline.of(DEVICE, base, isolated=True)
    others = sorted(abs(plain.seconds(row.work) / row.seconds - 1) for row in rows)
    assert errors[len(errors) // 2] < 0.5 * others[len(others) // 2]


def test_ceilings_are_the_best_rates(rows):
    found = fit_device(rows, packaged_calibration(), DEVICE)
    best = max(r.work.flops / r.seconds for r in rows if r.work.compute == "bf16")
    assert found.flops_per_s["bf16"].value == pytest.approx(best)
    assert "fp32" not in found.flops_per_s
    assert found.bandwidth_bytes_per_s.value == pytest.approx(0.9e12, rel=0.1)


def test_what_was_measured_of_the_host_is_kept(rows):
    call = Coefficient(value=4e-6, error=1e-6)
    found = fit_device(rows, packaged_calibration(), DEVICE, host_call_s=call, sources=["here"])
    assert (found.host_call_s, found.step_s, found.sources) == (call, None, ("here",))
    assert found.spec is None
    assert found.machine_spread == pytest.approx(0.03)


def test_a_device_of_which_nothing_is_known_keeps_its_own_description(rows):
    own = dataclasses.replace(
        DEVICE, name="my-processor", kind="cpu", architecture="cpu", compute_capability=None
    )
    found = fit_device(rows, None, own)
    assert found.spec == own
    assert set(found.laws) == {"matmul/half", "elementwise"}


def test_few_rows_stay_near_what_the_family_shows():
    base = packaged_calibration()
    rows = made_rows(PRODUCTS[-1:], "x", facts("ada", flops_per_s=150e12))
    found = fit_device(rows, base, DEVICE).laws["matmul/half"].terms
    known = base.families["ada"].laws["matmul/half"].terms
    for name in ("edge", "chain", "split"):
        assert found[name].value == pytest.approx(known[name].value, rel=0.3)


def test_no_rows_are_an_error():
    with pytest.raises(FitError, match="cannot calibrate rtx-4090"):
        fit_device([], packaged_calibration(), DEVICE)
