"""Which sizes are shown, and the largest one that fits, on made runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bsprof.errors import MeasurementError
from bsprof.predict.forecast import Forecast
from bsprof.predict.memory import MemoryModel
from bsprof.predict.room import Conditions
from bsprof.predict.terms import End
from bsprof.records import PointStatus

MIB = 2**20
GIB = 2**30


def forecast(made_run, device, *, smallest=1, cap=None, **changes):
    model = MemoryModel(made_run, replace(Conditions(device=device), **changes))
    return model, Forecast(model, smallest=smallest, cap=cap)


@pytest.mark.parametrize("capacity", [1.2 * GIB, 2 * GIB, 5.3 * GIB, 12 * GIB])
def test_the_largest_size_fits_and_the_next_one_does_not(made_run, card, capacity):
    model, found = forecast(made_run, card(capacity))
    largest = found.largest()
    value = int(largest.value)
    assert model.fits(value)
    assert not model.fits(value + 1)
    assert model.fits(int(largest.low), End.HIGH)
    assert not model.fits(int(largest.high) + 1, End.LOW)
    assert largest.low <= value <= largest.high
    assert found.largest_after_flush(value) >= value


def test_more_memory_never_gives_a_smaller_size(made_run, card):
    sizes = [forecast(made_run, card(c * GIB))[1].largest().value for c in (1, 1.5, 2, 3, 6)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_sizes_show_the_curve_up_to_the_largest_and_one_beyond(made_run, card):
    _, found = forecast(made_run, card(4 * GIB))
    largest = found.largest()
    sizes = found.sizes(largest)
    assert sizes == tuple(sorted(set(sizes)))
    assert sizes[0] == 1
    assert {int(largest.low), int(largest.value)} <= set(sizes)
    assert [b for b in sizes if b > largest.value] == [sizes[-1]]
    points = found.points(sizes, largest)
    assert [p.micro_batch_size for p in points] == list(sizes)
    assert points[-1].status is PointStatus.OOM or points[-1].alloc_retries
    assert all(p.is_ok for p in points[:-1])
    assert [p.prediction.timeline is not None for p in points].count(True) == 1
    drawn = next(p for p in points if p.prediction.timeline is not None)
    assert drawn.micro_batch_size == largest.value


def test_a_size_that_does_not_fit_says_what_it_needs_and_who_owns_it(made_run, card):
    _, found = forecast(made_run, card(2 * GIB))
    largest = found.largest()
    [point] = found.points([4 * int(largest.value)], largest)
    assert point.status is PointStatus.OOM
    assert "would need" in point.failure.reason
    assert "of its peak activations" in point.failure.reason
    assert point.failure.requested_bytes > 0
    assert point.failure.phase == "forward_backward"
    assert point.device_used_bytes.value > 2 * GIB
    assert point.micro_step_s is None


def test_where_nothing_fits_the_smallest_size_is_shown(made_run, card):
    _, found = forecast(made_run, card(0.6 * GIB), smallest=2)
    assert found.largest() is None
    assert found.sizes(None) == (2,)
    [point] = found.points((2,), None)
    assert point.status is PointStatus.OOM
    assert point.prediction.timeline is not None


def test_a_cap_is_never_passed(made_run, card):
    _, found = forecast(made_run, card(4 * GIB), cap=24)
    largest = found.largest()
    assert (largest.low, largest.value, largest.high) == (24, 24, 24)
    assert found.sizes(largest) == (1, 2, 4, 8, 16, 24)
    [beyond] = found.points([25], largest)
    assert beyond.status is PointStatus.SKIPPED


def test_a_size_that_cannot_be_traced_is_a_failed_point(made_run, card):
    def streams(size):
        if size == 3:
            raise MeasurementError("cannot trace three", found="line one\nline two")
        return made_run(size)

    found = Forecast(MemoryModel(streams, Conditions(device=card(4 * GIB))), smallest=1, cap=None)
    points = found.points([2, 3], None)
    assert [p.status for p in points] == [PointStatus.OK, PointStatus.FAILED]
    assert points[1].failure.reason == "cannot trace three"
    assert points[1].failure.tail == ("line one", "line two")


@pytest.mark.parametrize("broken", [3, 16, 40, 100])
def test_where_sizes_cannot_be_traced_the_largest_below_them_is_found(made_run, card, broken):
    def streams(size):
        if size >= broken:
            raise MeasurementError(f"cannot trace {size}")
        return made_run(size)

    found = Forecast(MemoryModel(streams, Conditions(device=card(4 * GIB))), smallest=1, cap=None)
    largest = found.largest()
    assert largest.value == largest.high == broken - 1
    assert found.largest_after_flush(broken - 1) == broken - 1
