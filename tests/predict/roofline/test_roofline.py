"""The roofline of a device: whose numbers it takes, and what it makes of a work."""

import dataclasses

import pytest

from bsprof.accounting.work import Work, WorkClass
from bsprof.calibrate.fit.works import product, traffic
from bsprof.hardware.catalogue import find_device
from bsprof.predict.roofline import Roofline
from bsprof.predict.roofline.roofline import STEP_SHARE
from bsprof.records import Regime
from bsprof.records.calibration import Coefficient, DeviceCalibration, LawTerms, LikeLaw

A100, H100 = "a100-80gb-sxm", "h100-80gb-sxm"
LARGE = product(8192, 8192, 8192, "bf16")
STREAM = traffic(WorkClass.ELEMENTWISE, 10**9, "bf16")
TINY = traffic(WorkClass.ELEMENTWISE, 1000, "bf16")


@pytest.fixture
def roofline(calibration):
    return Roofline.of(find_device(A100), calibration)


def test_large_works_reach_their_share_of_the_ceiling(roofline):
    rate = LARGE.flops / roofline.seconds(LARGE)
    assert 0.8 * 0.9 * 260e12 < rate < 0.9 * 260e12
    rate = STREAM.bytes / roofline.seconds(STREAM)
    assert rate == pytest.approx(0.95 * 1.75e12, rel=0.02)


def test_a_tiny_work_takes_its_launches(roofline):
    assert roofline.seconds(TINY) >= roofline.launch.value
    twice = dataclasses.replace(TINY, launches=2)
    difference = roofline.seconds(twice) - roofline.seconds(TINY)
    assert difference == pytest.approx(roofline.launch.value)


def test_a_work_that_launches_nothing_takes_nothing(roofline):
    assert roofline.seconds(Work(work_class=WorkClass.OTHER, compute="fp32", launches=0)) == 0


def test_what_binds(roofline):
    assert roofline.bound(LARGE) is Regime.COMPUTE
    assert roofline.bound(STREAM) is Regime.BANDWIDTH
    assert roofline.bound(TINY) is Regime.LAUNCH


def test_host_seconds_by_direction(roofline):
    backward = dataclasses.replace(TINY, backward=True)
    part = dataclasses.replace(TINY, calls=0)
    assert roofline.host_seconds([TINY, TINY, backward, part]) == pytest.approx(2e-5 + 8e-6)


def test_relatives_lend_their_shapes_and_it_is_said(calibration):
    roofline = Roofline.of(find_device(H100), calibration)
    assert any("ampere: " in sentence for sentence in roofline.provenance)
    terms, scale = roofline.resolved("matmul/half")
    assert (terms["share"], scale) == (0.9, 1.0)


def test_spreads_grow_with_distance(calibration):
    near, cousin = (Roofline.of(find_device(n), calibration) for n in (A100, "a30"))
    far = Roofline.of(find_device(H100), calibration)
    spreads = [r.spread(WorkClass.ELEMENTWISE) for r in (near, cousin, far)]
    assert spreads == pytest.approx([STEP_SHARE * s for s in (0.05, 0.1, 0.2)])
    assert near.machine_spread == pytest.approx(STEP_SHARE * 0.1)


def test_the_spread_of_one_compute_type(roofline):
    assert roofline.spread(WorkClass.MATMUL, "bf16") == pytest.approx(STEP_SHARE * 0.06)
    assert roofline.spread(WorkClass.MATMUL) > STEP_SHARE * 0.06  # fp32 was not measured


def test_a_machine_and_a_device_have_scales(calibration):
    own = dataclasses.replace(
        calibration.devices[A100],
        machine_scale=Coefficient(value=1.1),
        machine_spread=0.02,
        law_scales={"elementwise": Coefficient(value=1.2)},
    )
    scaled = dataclasses.replace(calibration, devices={A100: own})
    plain, slower = (Roofline.of(find_device(A100), c) for c in (calibration, scaled))
    assert slower.seconds(LARGE) == pytest.approx(1.1 * plain.seconds(LARGE))
    assert slower.seconds(STREAM) == pytest.approx(1.32 * plain.seconds(STREAM))
    assert slower.machine_spread == 0.02


def test_a_law_that_is_like_another_shares_the_device_s_scale(calibration):
    own = dataclasses.replace(
        calibration.devices[A100], law_scales={"elementwise": Coefficient(value=1.2)}
    )
    known = dataclasses.replace(
        calibration,
        like={"copy": LikeLaw(law="elementwise")},
        devices={A100: own},
        spreads=dataclasses.replace(calibration.spreads, measured={"copy": 0.07}),
    )
    roofline = Roofline.of(find_device(A100), known)
    copy = dataclasses.replace(STREAM, work_class=WorkClass.COPY)
    assert roofline.seconds(copy) == pytest.approx(roofline.seconds(STREAM))
    assert roofline.spread(WorkClass.COPY) == pytest.approx(STEP_SHARE * 0.07)


def test_terms_of_the_device_s_own_win(calibration):
    own = DeviceCalibration(
        device=A100,
        laws={"elementwise": LawTerms(terms={"share": Coefficient(value=0.5)}, rows=9)},
        host_call_s=Coefficient(value=3e-6, error=1e-6),
        step_s=Coefficient(value=1e-3),
        sources=("measured here",),
    )
    known = dataclasses.replace(calibration, devices={A100: own})
    roofline = Roofline.of(find_device(A100), known)
    terms, _scale = roofline.resolved("elementwise")
    assert terms["share"] == 0.5
    assert roofline.host_seconds([TINY]) == pytest.approx(3e-6)
    assert roofline.host_spread == pytest.approx(1 / 3)
    assert roofline.step_seconds == 1e-3
    assert roofline.provenance[0] == "measured here"


def test_the_cache_helps_less_in_a_step_than_in_a_benchmark(calibration):
    ampere = calibration.families["ampere"]
    law = ampere.laws["elementwise"]
    law = dataclasses.replace(law, terms={**law.terms, "cache_gain": Coefficient(value=6.0)})
    ampere = dataclasses.replace(ampere, laws={**ampere.laws, "elementwise": law})
    known = dataclasses.replace(calibration, families={**calibration.families, "ampere": ampere})
    small = traffic(WorkClass.ELEMENTWISE, 10**7, "bf16")
    step, alone = (
        Roofline.of(find_device(A100), known, isolated=isolated) for isolated in (False, True)
    )
    assert step.seconds(small) > 1.5 * alone.seconds(small)
    assert step.seconds(STREAM) == pytest.approx(alone.seconds(STREAM))
