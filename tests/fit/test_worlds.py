"""Sizes that were predicted in the same worlds: what of their uncertainty is left between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bsprof.fit.knee import throughput_shape
from bsprof.fit.samples import percentile, spread_of_outcomes
from bsprof.fit.worlds import excess_per_sample, micro_step_worlds, probability
from bsprof.predict.scenarios import WORLDS, factors
from bsprof.records import (
    Point,
    PointPrediction,
    PointStatus,
    Quantity,
    Saturation,
    TimeWorlds,
)

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
MACHINE = factors("machine", 0.2)


def predicted(size: int, seconds: float, worlds: Sequence[float]) -> Point:
    return Point(
        micro_batch_size=size,
        status=PointStatus.OK,
        micro_step_s=spread_of_outcomes(seconds, worlds),
        prediction=PointPrediction(worlds=TimeWorlds(micro_step_s=tuple(worlds))),
    )


def alike(size: int, seconds: float) -> Point:
    """A size whose whole error is that of the machine."""
    return predicted(size, seconds, [seconds * f for f in MACHINE])


def test_percentiles_lie_between_outcomes_in_proportion() -> None:
    outcomes = [float(i) for i in range(1, 61)]
    assert percentile(outcomes, 0.05) == pytest.approx(3.5)
    assert percentile(outcomes, 0.95) == pytest.approx(57.5)
    assert percentile(outcomes, 0.5) == pytest.approx(30.5)
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile(outcomes, 0.0) == 1.0
    assert percentile(outcomes, 1.0) == 60.0
    assert percentile([7.0], 0.05) == 7.0
    with pytest.raises(ValueError, match="at least one outcome"):
        percentile([], 0.5)


def test_a_spread_holds_the_value_even_where_outcomes_do_not() -> None:
    found = spread_of_outcomes(10.0, [1.0, 2.0, 3.0])
    assert (found.value, found.high) == (10.0, 10.0)
    assert found.low < 2.0
    assert spread_of_outcomes(2.0, [2.0] * 9) == Quantity.exact(2.0)


def test_what_errs_alike_cancels_between_sizes() -> None:
    small, large = alike(4, 0.404), alike(8, 0.8)
    assert small.micro_step_s is not None
    assert small.micro_step_s.relative_width > 0.5
    excess = excess_per_sample(small, large)
    assert excess is not None
    assert excess.value == pytest.approx(0.01)
    assert excess.high - excess.low < 1e-9


def test_there_is_no_difference_without_the_same_worlds() -> None:
    one, other = alike(4, 0.4), alike(8, 0.8)
    measured = replace(one, prediction=None)
    assert micro_step_worlds(measured) == ()
    assert excess_per_sample(measured, other) is None
    assert excess_per_sample(one, measured) is None
    fewer = predicted(8, 0.8, [0.8] * 7)
    assert excess_per_sample(one, fewer) is None
    assert excess_per_sample(one, predicted(8, 0.8, [0.0] * WORLDS)) is None


def test_certainty_is_never_claimed() -> None:
    assert probability([True] * 60) == pytest.approx(61 / 62)
    assert probability([False] * 60) == pytest.approx(1 / 62)
    assert probability([True, False]) == 0.5
    assert probability([]) == 0.5


def test_the_knee_is_sharp_where_only_the_machine_is_not_known() -> None:
    shape = throughput_shape([alike(b, 1e-3 * (2 + b)) for b in SIZES])
    assert shape.saturation is Saturation.SATURATED
    assert shape.knee is not None
    assert shape.knee.value == pytest.approx(38, rel=0.02)
    assert shape.knee.low > 20
    assert shape.knee.high < 60


def test_the_knee_is_wide_where_it_lies_elsewhere_in_other_worlds() -> None:
    host, device = factors("host", 0.6), factors("device", 0.2)

    def point(size: int) -> Point:
        worlds = [max(8e-3 * h, 1e-3 * size * d) for h, d in zip(host, device, strict=True)]
        return predicted(size, max(8e-3, 1e-3 * size), worlds)

    wide = throughput_shape([point(b) for b in SIZES]).knee
    assert wide is not None
    assert wide.value == pytest.approx(7.6, rel=0.05)
    assert wide.low < 4
    assert wide.high > 16


def test_worlds_in_which_throughput_still_rises_put_the_knee_at_the_end() -> None:
    late = [i < WORLDS // 4 for i in range(WORLDS)]

    def point(size: int) -> Point:
        worlds = [1e-3 * ((20 if rises else 2) + size) for rises in late]
        return predicted(size, 1e-3 * (2 + size), worlds)

    knee = throughput_shape([point(b) for b in SIZES]).knee
    assert knee is not None
    assert knee.high == 128


def test_sizes_of_different_worlds_have_the_knee_of_their_values() -> None:
    points = [alike(b, 1e-3 * (2 + b)) for b in SIZES]
    mixed = [*points[:-1], predicted(128, 0.13, [0.13] * 7)]
    assert throughput_shape(mixed).knee is not None
