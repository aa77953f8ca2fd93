"""Scores on numbers made by hand, whose answers are plain."""

from __future__ import annotations

import math

import pytest

from bsprof.records import Quantity
from bsprof.validate import scores
from bsprof.validate.scores import BracketAnswer, Pair, Place


def pair(
    predicted: float,
    measured: float,
    *,
    model: str = "m",
    size: int = 1,
    width: float = 0.0,
) -> Pair:
    return Pair(
        name=f"{model}:{size}",
        model=model,
        micro_batch=size,
        predicted=Quantity(
            value=predicted, low=predicted * (1 - width), high=predicted * (1 + width)
        ),
        measured=measured,
    )


def test_errors_of_a_group():
    found = scores.errors_of([pair(90, 100), pair(98, 100), pair(104, 100), pair(120, 100)])
    assert found is not None
    assert found.count == 4
    assert found.median == pytest.approx(0.07)
    assert found.ninetieth == pytest.approx(0.20)
    assert found.signed == pytest.approx(0.01)
    assert found.too_low == 0.5


def test_no_rows_have_no_errors():
    assert scores.errors_of([]) is None


def test_coverage_and_width():
    found = scores.errors_of([pair(100, 104, width=0.05), pair(100, 106, width=0.05)])
    assert found is not None
    assert found.covered == 0.5
    assert found.width == pytest.approx(0.1)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 5), (0.9, 9), (1.0, 10), (0.05, 1)])
def test_quantile_is_a_value_that_was_seen(share, expected):
    assert scores.quantile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], share) == expected


def test_slopes_are_per_sample_and_by_model():
    found = scores.slope_pairs(
        [
            pair(110, 100, model="a", size=8),
            pair(230, 200, model="a", size=16),
            pair(400, 500, model="a", size=32),
            pair(1, 1, model="single", size=8),
        ]
    )
    [only] = found
    assert only.predicted.value == pytest.approx(290 / 24)
    assert only.measured == pytest.approx(400 / 24)


def test_a_measurement_that_does_not_grow_has_no_slope():
    assert scores.slope_pairs([pair(1, 5, size=1), pair(2, 5, size=2)]) == []
    # The optimizer step has the peak at both sizes, and rounding makes them differ.
    assert scores.slope_pairs([pair(99, 1000, size=4), pair(99, 1001, size=8)]) == []


def test_an_offset_is_fitted_on_one_half_and_scored_on_the_other():
    pairs = [pair(100, 130, model=f"model {i}") for i in range(40)]
    found = scores.fitted_offset(pairs)
    assert found is not None
    assert found.bytes == 30
    assert 0 < found.fitted_on < 40
    assert found.scored is not None
    assert found.scored.count == 40 - found.fitted_on
    assert found.scored.median == pytest.approx(0)


def test_an_offset_that_holds_for_one_half_alone_shows():
    pairs = [
        pair(100, 130 if scores.half_of(f"model {i}") == 0 else 160, model=f"model {i}")
        for i in range(40)
    ]
    found = scores.fitted_offset(pairs)
    assert found is not None
    assert found.scored is not None
    assert found.scored.signed == pytest.approx(130 / 160 - 1)


def test_halves_depend_on_the_name_alone():
    names = [f"model {i}" for i in range(200)]
    halves = [scores.half_of(name) for name in names]
    assert halves == [scores.half_of(name) for name in names]
    assert 70 < sum(halves) < 130


def bracket(
    *, lower: bool, upper: bool, lower_near: bool = False, upper_near: bool = False
) -> BracketAnswer:
    return BracketAnswer(
        name="r",
        lower_fits=lower,
        upper_fits=upper,
        lower_near=lower_near,
        upper_near=upper_near,
        fits=64,
        fails=96,
    )


@pytest.mark.parametrize(
    ("lower", "upper", "place"),
    [
        (True, False, Place.INSIDE),
        (True, True, Place.OPTIMISTIC),
        (False, True, Place.OPTIMISTIC),
        (False, False, Place.PESSIMISTIC),
    ],
)
def test_where_a_prediction_lies(lower, upper, place):
    assert bracket(lower=lower, upper=upper).place is place


def test_near_misses_count_as_inside_and_are_told_apart():
    found = scores.bracket_score(
        [
            bracket(lower=True, upper=False),
            bracket(lower=True, upper=True),
            bracket(lower=True, upper=True, upper_near=True),
            bracket(lower=False, upper=False, lower_near=True),
        ]
    )
    assert found is not None
    assert (found.inside, found.optimistic, found.pessimistic) == (1, 2, 1)
    assert (found.near_optimistic, found.near_pessimistic) == (1, 1)
    assert found.inside_share == 0.75
    assert found.optimistic_share == 0.25


def test_a_near_flag_of_the_other_end_says_nothing():
    assert not bracket(lower=True, upper=True, lower_near=True).is_near
    assert not bracket(lower=True, upper=False, upper_near=True).is_near


def test_open_brackets_are_not_scored():
    assert scores.bracket_score([BracketAnswer(name="r", lower_fits=True, fits=512)]) is None


def test_verdicts_around_the_peak():
    found = scores.peak_shares([pair(96, 100), pair(100, 100), pair(111, 100)])
    assert found["capacity 0.97 of the peak, called fits"].hits == 1
    assert found["capacity 1.10 of it, called does not fit"].hits == 1


def test_an_interval_is_less_sure():
    found = scores.peak_shares([pair(96, 100, width=0.05), pair(111, 100, width=0.05)])
    assert found["capacity 0.97, surely fits"].hits == 0
    assert found["capacity 1.10, surely does not fit"].hits == 0


def test_verdicts_at_limits_have_their_own_denominators():
    answers = [
        BracketAnswer(
            name="a", lower_fits=True, upper_fits=True, fits=64, fails=96, recommended=96
        ),
        BracketAnswer(
            name="b", lower_fits=False, upper_fits=False, fits=64, fails=96, recommended=31
        ),
        BracketAnswer(name="open", lower_fits=True, fits=512, recommended=512),
        BracketAnswer(name="oom", upper_fits=False, fits=0, fails=8),
    ]
    found = scores.limit_shares(answers)
    assert found["out of memory, called fits"] == scores.Share(hits=1, count=3)
    assert found["ran, called does not fit"] == scores.Share(hits=1, count=3)
    assert found["recommended a size that ran out of memory"] == scores.Share(hits=1, count=2)
    assert found["recommended at least what ran"] == scores.Share(hits=2, count=3)
    assert found["recommended at least half of what ran"] == scores.Share(hits=2, count=3)


def test_a_share_of_nothing():
    assert scores.share([]).value == 0
    assert math.isclose(scores.share([True, False]).value, 0.5)
