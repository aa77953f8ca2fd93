"""Whole steps move the laws that no kernel measured, and only those."""

import random

import pytest

from bsprof.accounting.work import Work, WorkClass
from bsprof.calibrate.fit.steps import STEP, StepRow, fit_steps
from bsprof.calibrate.fit.works import convolution, product, traffic
from bsprof.errors import FitError
from bsprof.hardware.calibration import packaged_calibration
from bsprof.hardware.catalogue import find_device
from bsprof.predict.roofline import Roofline
from bsprof.predict.roofline.terms import resolve

DEVICE = "rtx-3090"
BASE = packaged_calibration()
WAYS = (
    WorkClass.CONVOLUTION_FORWARD,
    WorkClass.CONVOLUTION_DATA,
    WorkClass.CONVOLUTION_WEIGHT,
)


def works(rng: random.Random) -> list[tuple[Work, int]]:
    samples = rng.choice([32, 64, 128])
    found: list[tuple[Work, int]] = []
    for _ in range(6):
        channels, pixels = rng.choice([64, 128, 256, 512]), rng.choice([56, 28, 14]) ** 2
        kept = [rng.randint(1, 3) for _ in WAYS]
        area = rng.choice([1, 9])
        for way, count in zip(WAYS, kept, strict=True):
            work = convolution(
                way,
                "fp16",
                samples=samples,
                channels_in=channels,
                channels_out=channels,
                pixels_in=pixels,
                pixels_out=pixels,
                area=area,
            )
            found.append((work, count))
        found.append((traffic(WorkClass.ELEMENTWISE, 4 * samples * channels * pixels, "fp16"), 2))
    found.append((product(samples, 1000, 2048, "fp16"), 1))
    return found


def rows(slower: dict[WorkClass, float], count: int = 24) -> list[StepRow]:
    rng = random.Random(3)
    roofline = Roofline.of(find_device(DEVICE), BASE)
    found = []
    for i in range(count):
        parts = works(rng)
        seconds = sum(
            n * roofline.seconds(work) * slower.get(work.work_class, 1.0) for work, n in parts
        )
        found.append(
            StepRow(
                works=tuple(parts),
                seconds=seconds * rng.lognormvariate(0, 0.02),
                device=DEVICE,
                source="made",
                model=f"model {i}",
            )
        )
    return found


def terms(calibration, family: str, law: str):
    return resolve(law, family, calibration).terms


def errors(calibration, measured) -> list[float]:
    roofline = Roofline.of(find_device(DEVICE), calibration)
    return sorted(
        abs(sum(n * roofline.seconds(w) for w, n in row.works) / row.seconds - 1)
        for row in measured
    )


def test_steps_that_agree_change_little():
    measured = rows({})
    found = fit_steps(measured, BASE)
    assert errors(found, measured)[12] < 0.03
    for law in ("elementwise", "convolution_data/half"):
        old, new = (terms(c, "ampere 8.6", law)["share"].value for c in (BASE, found))
        assert new == pytest.approx(old, rel=0.15)


def test_slow_convolutions_are_learnt_and_the_rest_kept():
    measured = rows({WorkClass.CONVOLUTION_WEIGHT: 1.6, WorkClass.CONVOLUTION_DATA: 1.3})
    found = fit_steps(measured, BASE)
    assert errors(found, measured)[12] < 0.65 * errors(BASE, measured)[12]
    weight = "convolution_weight/half"
    old, new = (terms(c, "ampere 8.6", weight)["share"].value for c in (BASE, found))
    assert new < 0.9 * old
    for law in ("matmul/half", "softmax"):
        assert terms(found, "ampere 8.6", law) == terms(BASE, "ampere 8.6", law)


def test_families_below_move_along_and_others_do_not():
    found = fit_steps(rows({WorkClass.CONVOLUTION_WEIGHT: 1.6}), BASE)
    weight = "convolution_weight/half"
    for family in ("ampere", "ada", "hopper"):
        assert terms(found, family, weight) != terms(BASE, family, weight)
    for family in ("volta", "turing"):
        assert terms(found, family, weight) == terms(BASE, family, weight)


def test_a_law_knows_the_steps_behind_it():
    found = fit_steps(rows({}, count=10), BASE)
    law = "convolution_weight/half"
    assert found.families["ampere 8.6"].laws[law].rows >= 10
    assert DEVICE in found.families["ampere 8.6"].laws[law].devices
    assert DEVICE not in found.families["ada"].laws[law].devices


def test_what_is_left_is_reported_for_models_that_were_left_out():
    found = fit_steps(rows({WorkClass.CONVOLUTION_WEIGHT: 1.6}), BASE)
    (left,) = [r for r in found.residuals if r.law == STEP]
    assert (left.device, left.source, left.rows) == (DEVICE, "made", 24)
    assert left.left_out_median >= 0.5 * left.median
    again = fit_steps(rows({}), found)
    assert len([r for r in again.residuals if r.law == STEP]) == 1


def test_terms_keep_their_bounds():
    found = fit_steps(rows(dict.fromkeys(WAYS, 0.2)), BASE)
    for family in found.families.values():
        for name, law in family.laws.items():
            if name.startswith("convolution"):
                assert law.terms["share"].value <= 1.1 + 1e-9


def test_no_rows_are_an_error():
    with pytest.raises(FitError, match="no measured step"):
        fit_steps([], BASE)
