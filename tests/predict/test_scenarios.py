import math
from statistics import mean, pstdev

import pytest

from bsprof.fit.samples import percentile, spread_of_outcomes
from bsprof.predict.scenarios import WORLDS, draws, factors


def test_draws_are_the_same_for_the_same_name_and_standard_normal():
    assert draws("machine a") == draws("machine a")
    assert draws("machine a") != draws("machine b")
    assert sorted(draws("machine a")) == sorted(draws("machine b"))  # a part each
    assert mean(draws("x")) == pytest.approx(0, abs=1e-9)
    assert pstdev(draws("x")) == pytest.approx(1, abs=0.02)


def test_factors_have_the_median_one_and_their_spread():
    values = factors("x", 0.2)
    assert len(values) == WORLDS
    assert percentile(values, 0.5) == pytest.approx(1.0, abs=0.005)
    assert pstdev([math.log(v) for v in values]) == pytest.approx(0.2, rel=0.02)
    assert set(factors("x", 0.0)) == {1.0}


def test_an_interval_of_worlds_holds_nine_tenths_of_them():
    values = factors("x", 0.1)
    found = spread_of_outcomes(1.0, values)
    inside = sum(found.low <= v <= found.high for v in values)
    assert 0.86 * WORLDS <= inside <= 0.94 * WORLDS
    assert found.low == pytest.approx(math.exp(-0.1645), rel=0.01)


def test_factors_of_two_names_are_nearly_unrelated():
    pairs = zip(draws("a"), draws("b"), strict=True)
    assert abs(sum(x * y for x, y in pairs) / WORLDS) < 0.35
