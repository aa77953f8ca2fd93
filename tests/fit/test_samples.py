from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsprof.fit.samples import (
    is_precise_enough,
    median_quantity,
    paired_difference,
    relative_difference,
)
from bsprof.fit.student import t_cdf, t_quantile
from bsprof.records import Quantity

MAKERS = {
    "normal": (lambda rng: rng.gauss(1.0, 0.05), 1.0),
    "skewed": (lambda rng: rng.lognormvariate(0, 0.2), 1.0),
    "exponential tail": (lambda rng: 1 + 0.1 * rng.expovariate(1), 1 + 0.1 * math.log(2)),
}


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 10, 21, 60, 250])
@pytest.mark.parametrize("maker", MAKERS)
def test_median_is_covered_in_85_to_96_percent(maker: str, count: int) -> None:
    draw, true = MAKERS[maker]
    rng = random.Random(count)
    trials = 1000
    covered = 0
    for _ in range(trials):
        quantity = median_quantity([draw(rng) for _ in range(count)])
        covered += quantity.low <= true <= quantity.high
    assert 0.86 <= covered / trials <= 0.96


def test_interval_of_five_samples_is_narrower_than_their_range() -> None:
    samples = [1.0, 1.1, 1.2, 1.4, 1.9]
    quantity = median_quantity(samples)
    assert quantity.value == 1.2
    assert 1.0 < quantity.low < 1.1
    assert 1.4 < quantity.high < 1.9


def test_large_samples_agree_with_the_normal_approximation() -> None:
    rng = random.Random(4)
    samples = [rng.gauss(0, 1) for _ in range(2001)]
    quantity = median_quantity(samples)
    expected = 2 * 1.645 * math.sqrt(math.pi / 2) / math.sqrt(len(samples))
    assert quantity.high - quantity.low == pytest.approx(expected, rel=0.25)


def test_a_single_sample_is_no_evidence() -> None:
    quantity = median_quantity([2.0])
    assert (quantity.value, quantity.low, quantity.high) == (2.0, 1.5, 2.5)
    assert not is_precise_enough([2.0], relative_error=0.5)


def test_a_drift_widens_the_interval() -> None:
    shuffled = [1 + 0.01 * ((7 * i) % 30) for i in range(30)]
    drifting = sorted(shuffled)
    assert median_quantity(drifting).relative_width > 2 * median_quantity(shuffled).relative_width


def test_slow_waves_of_noise_are_covered() -> None:
    rng = random.Random(8)
    covered = 0
    for _ in range(400):
        level, samples = rng.gauss(0, 1), []
        for _ in range(40):
            level = 0.6 * level + 0.8 * rng.gauss(0, 1)
            samples.append(10 + 0.1 * level)
        quantity = median_quantity(samples)
        covered += quantity.low <= 10 <= quantity.high
    assert 0.85 <= covered / 400 <= 0.96


@pytest.mark.parametrize("bad", [[], [1.0, math.nan], [math.inf]])
def test_bad_samples_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="sample"):
        median_quantity(bad)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(min_value=1e-6, max_value=1e6), min_size=1, max_size=40),
    st.floats(min_value=0.01, max_value=100),
)
def test_interval_holds_the_median_and_scales_with_the_unit(
    samples: list[float], factor: float
) -> None:
    quantity = median_quantity(samples)
    assert quantity.low <= quantity.value <= quantity.high
    assert quantity.value == statistics.median(samples)
    scaled = median_quantity([factor * sample for sample in samples])
    assert scaled.high - scaled.low == pytest.approx(
        factor * (quantity.high - quantity.low), rel=1e-6, abs=1e-9 * factor * max(samples)
    )


def test_precision_is_reached_with_more_samples() -> None:
    rng = random.Random(3)
    samples = [rng.gauss(1, 0.05) for _ in range(400)]
    assert not is_precise_enough(samples[:6], relative_error=0.01)
    assert is_precise_enough(samples, relative_error=0.01)
    assert not is_precise_enough([1.0, 1.0], relative_error=0.01)
    assert is_precise_enough([1.0, 1.0, 1.0], relative_error=0.01)


def test_noise_of_a_round_cancels_in_a_paired_difference() -> None:
    rng = random.Random(5)
    rounds = [rng.lognormvariate(0, 0.2) for _ in range(15)]
    fast = [r * rng.gauss(1.0, 0.002) for r in rounds]
    slow = [1.01 * r * rng.gauss(1.0, 0.002) for r in rounds]
    paired = paired_difference(slow, fast)
    assert paired.low > 0.005
    assert paired.high < 0.015
    apart = relative_difference(median_quantity(slow), median_quantity(fast))
    assert apart.high - apart.low > 5 * (paired.high - paired.low)


@pytest.mark.parametrize(("n_a", "n_b"), [(9, 9), (7, 12), (5, 5), (20, 20)])
def test_differences_of_independent_samples_are_covered(n_a: int, n_b: int) -> None:
    rng = random.Random(n_a)
    covered = 0
    for _ in range(600):
        a = [1.02 * rng.lognormvariate(0, 0.03) for _ in range(n_a)]
        b = [rng.lognormvariate(0, 0.03) for _ in range(n_b)]
        quantity = paired_difference(a, b)
        covered += quantity.low <= 0.02 <= quantity.high
    assert 0.85 <= covered / 600 <= 0.97


def test_wide_intervals_reach_no_further_than_both_ends_at_their_worst() -> None:
    fast, slow = Quantity(value=100, low=30, high=200), Quantity(value=4, low=2, high=10)
    found = relative_difference(fast, slow)
    assert (found.low, found.value) == (30 / 10 - 1, 100 / 4 - 1)
    assert found.high <= 200 / 2 - 1
    narrow = relative_difference(
        Quantity(value=100, low=99, high=101), Quantity(value=50, low=49.5, high=50.5)
    )
    assert narrow.low == pytest.approx(2 * (1 - math.hypot(0.01, 0.01)) - 1)


def test_difference_needs_positive_samples() -> None:
    with pytest.raises(ValueError, match="above zero"):
        paired_difference([1.0], [])
    with pytest.raises(ValueError, match="above zero"):
        paired_difference([1.0, 0.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="above zero"):
        relative_difference(Quantity.exact(0.0), Quantity.exact(1.0))


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(1, 6.3138), (2, 2.9200), (3, 2.3534), (4, 2.1318), (10, 1.8125), (30, 1.6973), (999, 1.6449)],
)
def test_student_quantiles_are_those_of_the_tables(degrees: int, expected: float) -> None:
    assert t_quantile(0.95, degrees) == pytest.approx(expected, abs=2e-4)
    assert t_quantile(0.05, degrees) == pytest.approx(-expected, abs=2e-4)
    assert t_cdf(expected, degrees) == pytest.approx(0.95, abs=1e-4)


def test_student_refuses_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="degrees of freedom"):
        t_cdf(1.0, 0)
    with pytest.raises(ValueError, match="probability"):
        t_quantile(1.0, 3)
