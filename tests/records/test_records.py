from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsprof import records
from bsprof.errors import MeasurementError
from bsprof.records import (
    Failure,
    PieceRun,
    Point,
    PointStatus,
    Quantity,
    RankPieces,
    per_second,
)

FINITE = st.floats(min_value=-1e200, max_value=1e200)


def test_records_are_frozen_and_keyword_only():
    for record in vars(records).values():
        if isinstance(record, type) and dataclasses.is_dataclass(record):
            assert record.__dataclass_params__.frozen, record
            assert all(field.kw_only for field in dataclasses.fields(record)), record


@pytest.mark.parametrize(
    "ends", [(2.0, 1.0, 3.0), (0.0, 1.0, 0.5), (math.nan, 1, 2), (0, math.inf, math.inf)]
)
def test_a_quantity_outside_its_interval_is_refused(ends):
    low, value, high = ends
    with pytest.raises(ValueError, match=r"outside its interval|must be finite"):
        Quantity(value=value, low=low, high=high)


@given(value=FINITE, low=FINITE, high=FINITE)
def test_ordered_always_contains_its_value(value, low, high):
    quantity = Quantity.ordered(value, low, high)
    assert quantity.low <= value <= quantity.high


def test_relative_width():
    assert Quantity(value=10, low=9, high=11).relative_width == pytest.approx(0.2)
    assert Quantity.exact(0).relative_width == 0
    assert Quantity(value=0, low=0, high=1).relative_width == math.inf


def test_a_rate_swaps_the_ends():
    assert per_second(6, Quantity(value=2, low=1, high=3)) == Quantity(value=3, low=2, high=6)


def test_scaled_keeps_the_interval():
    assert Quantity(value=2, low=1, high=3).scaled(2) == Quantity(value=4, low=2, high=6)


def test_only_oom_and_kill_say_too_big():
    too_big = {status for status in PointStatus if status.is_too_big}
    assert too_big == {PointStatus.OOM, PointStatus.KILLED}


def test_a_size_that_needed_a_cache_flush_is_not_offered(make_profile, make_point):
    flushed = make_point(8, 0.1, 100, alloc_retries=1)
    profile = make_profile(points=(make_point(4, 0.1, 100), flushed))
    assert [p.micro_batch_size for p in profile.ok_points()] == [4]


def test_smallest_too_big_and_lookup(make_profile):
    profile = make_profile()
    assert profile.smallest_too_big() == profile.point(128)
    assert profile.point(3) is None
    profile.raise_for_status()


def test_raise_for_status_names_the_smallest_failure(make_profile):
    points = tuple(
        Point(
            micro_batch_size=size,
            status=PointStatus.OOM,
            failure=Failure(reason=f"refused at {size}", phase="step"),
        )
        for size in (2, 4)
    )
    with pytest.raises(MeasurementError) as caught:
        make_profile(points=points).raise_for_status()
    assert caught.value.found == "the smallest tried, 2, ended oom: refused at 2"
    assert "--memory-limit" in caught.value.next_step


def test_raise_for_status_without_any_point(make_profile):
    with pytest.raises(MeasurementError, match="no point"):
        make_profile(points=()).raise_for_status()


def test_raise_for_status_tells_why_all_sizes_were_skipped(make_profile):
    skipped = Point(
        micro_batch_size=8,
        status=PointStatus.SKIPPED,
        failure=Failure(reason="the time budget is used up", phase="start"),
    )
    with pytest.raises(MeasurementError, match="gpt-tiny was tried") as caught:
        make_profile(points=(skipped,)).raise_for_status()
    assert caught.value.found == (
        "the smallest asked for, 8, was skipped: the time budget is used up"
    )
    assert "--time-budget" in caught.value.next_step


def test_raise_for_status_does_not_blame_memory_for_a_failing_script(make_profile):
    failed = Point(micro_batch_size=1, status=PointStatus.FAILED)
    with pytest.raises(MeasurementError) as caught:
        make_profile(points=(failed,)).raise_for_status()
    assert "mend the cause" in caught.value.next_step


@pytest.mark.parametrize("size", [0, -1])
def test_a_point_without_samples_is_refused(size):
    with pytest.raises(ValueError, match="at least one sample"):
        Point(micro_batch_size=size, status=PointStatus.OK)


def test_pieces_are_kept_in_runs_and_read_one_by_one():
    kind = RankPieces.of((64, 64, 16), ranks=2)
    assert kind.runs == (PieceRun(size=64, count=2), PieceRun(size=16, count=1))
    assert (kind.steps, kind.samples, kind.sizes) == (3, 144, {64, 16})
    assert kind.expanded() == (64, 64, 16)
