"""What the points so far say, by hand-made points."""

from dataclasses import replace

import pytest

from bsprof.measure.choose import best_size, contenders, largest_size
from bsprof.records import (
    MemoryPeaks,
    Phase,
    Point,
    PointPrediction,
    PointStatus,
    Quantity,
    TimeWorlds,
    Timing,
)

LIMIT = 1000


def ok(size, seconds=None, used=None):
    used = 100 + 10 * size if used is None else used
    return Point(
        micro_batch_size=size,
        status=PointStatus.OK,
        micro_step_s=None if seconds is None else Quantity.exact(seconds),
        memory=MemoryPeaks(
            resident_bytes=100,
            allocated_by_phase_bytes={Phase.FORWARD_BACKWARD: used},
            device_used_by_phase_bytes={Phase.FORWARD_BACKWARD: used},
        ),
    )


def failed(size):
    return Point(micro_batch_size=size, status=PointStatus.OOM)


def between(low, value, high):
    return Quantity(value=value, low=low, high=high)


def test_what_ran_and_what_did_not_bound_it():
    found = largest_size([ok(8), ok(80), failed(84)], LIMIT, None, between(60, 70, 75))
    assert (found.low, found.value, found.high) == (80, 80, 83)
    found = largest_size([ok(8), ok(80), failed(84)], LIMIT, None, between(60, 82, 90))
    assert (found.low, found.value, found.high) == (80, 82, 83)


def test_a_prediction_that_is_proven_too_low_gives_way():
    found = largest_size([ok(8), ok(80)], LIMIT, None, between(60, 70, 75))
    assert (found.low, found.value) == (80, 80)
    assert found.high == 84


def test_where_processes_differ_the_interval_reaches_below_what_ran_once():
    found = largest_size([ok(8), ok(80), failed(84)], LIMIT, None, between(60, 82, 90), scatter=0.1)
    assert (found.low, found.value, found.high) == (72, 82, 83)


def test_the_cap_is_the_largest_when_it_ran():
    assert largest_size([ok(8), ok(16)], LIMIT, 16) == Quantity.exact(16)


def test_without_a_prediction_the_memory_fit_says_it():
    found = largest_size([ok(1), ok(4), ok(16), ok(32)], LIMIT, None)
    assert found.low <= 90 <= found.high


def test_nothing_ran():
    assert largest_size([failed(1)], LIMIT, None) is None
    assert best_size([failed(1)], LIMIT) is None


def test_the_best_is_the_cheapest_sample_among_timed_sizes():
    assert best_size([ok(1, 1.0), ok(4, 2.0), ok(8, 4.8), ok(16)], LIMIT) == 4


@pytest.mark.parametrize(("spent", "sizes"), [(1000.0, (4, 8)), (1.0, ())])
def test_near_equals_are_compared_when_it_is_worth_the_time(spent, sizes):
    found, rounds = contenders([ok(1, 1.0), ok(4, 2.0), ok(8, 4.05), ok(16, 9.0)], spent)
    assert found == sizes
    assert (rounds >= 1) == bool(sizes)


def test_a_failure_that_is_not_about_memory_bounds_nothing():
    slow = Point(micro_batch_size=256, status=PointStatus.TIMEOUT)
    found = largest_size([ok(8), ok(64), slow], LIMIT, None, between(125, 130, 135))
    assert (found.low, found.value, found.high) == (125, 130, 135)


def test_a_known_failure_far_above_only_bounds_the_prediction():
    found = largest_size([ok(8), ok(64), failed(256)], LIMIT, None, between(125, 130, 135))
    assert (found.low, found.value, found.high) == (125, 130, 135)


def raced(size, seconds, rounds):
    point = ok(size, seconds)
    return replace(
        point,
        timing=Timing(micro_step_samples_s=(seconds,) * 5, race_samples_s=tuple(rounds)),
    )


def test_a_shown_tie_goes_to_the_smaller():
    slow_moments = (1.0, 1.3, 0.9, 1.1, 1.0, 1.2)
    small = raced(4, 0.4008, [0.4008 * m for m in slow_moments])
    large = raced(8, 0.8, [0.8 * m for m in slow_moments])
    assert best_size([small, large], LIMIT) == 4
    apart = raced(4, 0.42, [0.42 * m for m in slow_moments])
    assert best_size([apart, large], LIMIT) == 8


def test_the_usual_headroom_stays_free():
    tight = replace(ok(8, 0.8), device_used_bytes=Quantity.exact(960))
    roomy = replace(ok(4, 0.5), device_used_bytes=Quantity.exact(500))
    assert best_size([roomy, tight], LIMIT) == 4
    assert best_size([tight], LIMIT) == 8


def test_a_cap_that_was_not_reached_says_nothing_of_memory():
    flat = [ok(1, used=100), ok(2, used=100)]
    assert largest_size(flat, LIMIT, 3) is None


def foretold(size, seconds, worlds):
    prediction = PointPrediction(worlds=TimeWorlds(micro_step_s=tuple(worlds)))
    return replace(ok(size, seconds), prediction=prediction)


def test_predicted_sizes_tie_world_by_world():
    machine = (0.7, 0.9, 1.0, 1.1, 1.4)
    large = foretold(8, 0.8, [0.8 * f for f in machine])
    assert best_size([foretold(4, 0.4008, [0.4008 * f for f in machine]), large], LIMIT) == 4
    assert best_size([foretold(4, 0.42, [0.42 * f for f in machine]), large], LIMIT) == 8
    unlike = foretold(4, 0.4008, [0.4008 * f for f in reversed(machine)])
    assert best_size([unlike, large], LIMIT) == 8  # a tie is shown, not assumed
