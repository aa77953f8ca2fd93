"""What the points so far say, by hand-made points."""

import pytest

from bsprof.measure.choose import best_size, contenders, largest_size
from bsprof.records import MemoryPeaks, Phase, Point, PointStatus, Quantity

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


def test_the_cap_is_the_largest_when_it_ran():
    assert largest_size([ok(8), ok(16)], LIMIT, 16) == Quantity.exact(16)


def test_without_a_prediction_the_memory_fit_says_it():
    found = largest_size([ok(1), ok(4), ok(16), ok(32)], LIMIT, None)
    assert found.low <= 90 <= found.high


def test_nothing_ran():
    assert largest_size([failed(1)], LIMIT, None) is None
    assert best_size([failed(1)]) is None


def test_the_best_is_the_cheapest_sample_among_timed_sizes():
    assert best_size([ok(1, 1.0), ok(4, 2.0), ok(8, 4.8), ok(16)]) == 4


@pytest.mark.parametrize(("spent", "sizes"), [(100.0, (4, 8)), (1.0, ())])
def test_near_equals_are_compared_when_it_is_worth_the_time(spent, sizes):
    found, rounds = contenders([ok(1, 1.0), ok(4, 2.0), ok(8, 4.05), ok(16, 9.0)], spent)
    assert found == sizes
    assert (rounds >= 1) == bool(sizes)
