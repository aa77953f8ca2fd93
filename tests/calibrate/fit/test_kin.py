"""Laws without measurements and the ones that they are like."""

import pytest

from bsprof.calibrate.fit.kin import KIN, order
from bsprof.predict.roofline.groups import LAWS
from bsprof.predict.roofline.terms import taken_over
from bsprof.records.calibration import Coefficient, LikeLaw


def test_kin_are_laws():
    assert set(KIN) <= set(LAWS)
    assert {kin.law for kin in KIN.values()} <= set(LAWS)


def test_every_law_comes_after_its_kin_and_backward_after_forward():
    places = {law: place for place, law in enumerate(order(LAWS))}
    assert len(places) == len(LAWS)
    assert all(places[kin.law] < places[law] for law, kin in KIN.items())
    for law, place in places.items():
        if law.startswith("attention_backward"):
            assert places[law.replace("backward", "forward")] < place


def test_the_share_is_scaled_and_less_sure():
    known = {
        name: Coefficient(value=term.default, error=0.1 * term.default)
        for name, term in LAWS["elementwise"].terms.items()
    }
    found = taken_over("copy", LikeLaw(law="elementwise", share=0.5, spread=0.3), known)
    share = known["share"].value
    assert found["share"].value == pytest.approx(0.5 * share)
    assert found["share"].error == pytest.approx(0.5 * share * (0.1**2 + 0.3**2) ** 0.5)
    assert found["cache_gain"] == known["cache_gain"]


def test_factors_stay_within_bounds():
    terms = {n: Coefficient(value=t.high) for n, t in LAWS["matmul/half"].terms.items()}
    found = taken_over("rnn/half", LikeLaw(law="matmul/half", share=2.0), terms)
    assert found["share"].value == LAWS["rnn/half"].terms["share"].high
