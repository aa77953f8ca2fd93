"""The schedule against simulated devices: known time and memory curves, nothing is timed."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsprof.measure import schedule
from bsprof.measure.choose import largest_size
from bsprof.records import MemoryPeaks, Phase, Point, PointStatus, Quantity, Timing

GIB = 2**30


def run(time_of, memory_of, limit, *, cap=None, smallest=1, find_max=False, spread=0.01):
    """All points that the schedule asks for, in order, and the largest size it arrives at."""
    points, largest = [], None
    for _ in range(schedule.MAX_POINTS + 1):
        step = schedule.next_step(
            schedule.View(
                points=tuple(points),
                smallest=smallest,
                cap=cap,
                largest=largest,
                find_max=find_max,
            )
        )
        if step is None:
            return points, largest
        points.append(outcome(step, time_of, memory_of, limit, spread))
        largest = largest_size(points, limit, cap)
    raise AssertionError("the schedule does not end")


def outcome(step, time_of, memory_of, limit, spread=0.01):
    size = step.micro_batch_size
    used = memory_of(size)
    if used > limit:
        return Point(micro_batch_size=size, status=PointStatus.OOM)
    seconds = time_of(size)
    return Point(
        micro_batch_size=size,
        status=PointStatus.OK,
        micro_step_s=Quantity(
            value=seconds, low=seconds * (1 - spread), high=seconds * (1 + spread)
        )
        if step.full
        else None,
        device_used_bytes=Quantity.exact(used),
        micro_steps_run=5,
        observed_micro_batch_size=size,
        timing=Timing(micro_step_samples_s=(seconds,) * 5),
        memory=MemoryPeaks(
            resident_bytes=memory_of(0),
            allocated_by_phase_bytes={Phase.FORWARD_BACKWARD: used},
            device_used_by_phase_bytes={Phase.FORWARD_BACKWARD: used},
        ),
    )


def sizes(points):
    return [p.micro_batch_size for p in points]


def memory(base_gib, per_sample_mib):
    return lambda b: int(base_gib * GIB + b * per_sample_mib * 2**20)


def best_found(points, time_of):
    costs = [time_of(p.micro_batch_size) / p.micro_batch_size for p in points if p.micro_step_s]
    return min(costs)


def best_there_is(time_of, memory_of, limit, top=4096):
    return min(time_of(b) / b for b in range(1, top) if memory_of(b) <= limit)


SHAPES = {
    "flat": lambda b: 0.03 * b,
    "saturating": lambda b: 0.08 + 0.01 * b,
    "launch-bound": lambda b: max(0.02, 0.0002 * b),
    "barely saturating": lambda b: 1.0 + 0.005 * b,
    "cliff": lambda b: (0.1 + 0.01 * b) * (1.8 if b > 27 else 1.0),
    "late cliff": lambda b: (0.4 + 0.01 * b) * (1.5 if b > 200 else 1.0),
    "falling": lambda b: 0.01 * b**1.15,
    "best in the middle": lambda b: 0.05 + 0.01 * b + 0.0004 * b**1.8,
    "saw-tooth": lambda b: 0.05 + 0.08 * math.ceil(b / 8),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_best_size_tried_is_within_three_percent_of_the_best_there_is(name):
    time_of, memory_of = SHAPES[name], memory(0.3, 30)
    points, _ = run(time_of, memory_of, 10 * GIB)
    assert best_found(points, time_of) <= 1.03 * best_there_is(time_of, memory_of, 10 * GIB)
    assert len(points) <= 14


# Not the cliff that only the larger limit reaches: that is another curve.
@pytest.mark.parametrize("name", sorted(set(SHAPES) - {"late cliff"}))
def test_more_memory_costs_few_points(name):
    few, _ = run(SHAPES[name], memory(0.3, 15), 1 * GIB)
    many, _ = run(SHAPES[name], memory(0.3, 15), 8 * GIB)
    assert len(many) <= len(few) + 3


def test_a_flat_curve_is_not_followed_to_the_limit():
    points, largest = run(SHAPES["flat"], memory(0.3, 15), 8 * GIB)
    assert max(sizes(points)) <= 32
    true = (8 - 0.3) * 1024 / 15
    assert largest.low <= true <= largest.high


def test_find_max_brackets_the_largest_size_by_running():
    points, largest = run(SHAPES["flat"], memory(0.3, 15), 3 * GIB, find_max=True)
    true = int((3 - 0.3) * 1024 / 15)
    assert schedule.largest_ok(tuple(points)) <= true < schedule.smallest_not_run(tuple(points))
    assert largest.high - largest.low <= max(1, 0.05 * true)
    assert largest.low <= true <= largest.high


def test_a_curve_that_rises_to_the_limit_is_bracketed_there():
    _, largest = run(SHAPES["barely saturating"], memory(0.3, 30), 3 * GIB)
    true = int((3 - 0.3) * 1024 / 30)
    assert largest.low <= true <= largest.high
    assert largest.high - largest.low <= 0.05 * true + 1


def test_nothing_fits():
    points, largest = run(SHAPES["flat"], memory(2, 1), 1 * GIB)
    assert sizes(points) == [1]
    assert largest is None


def test_too_big_at_the_start_goes_down():
    points, _ = run(SHAPES["flat"], memory(0.5, 400), 1 * GIB, smallest=2)
    assert points[0].status is PointStatus.OOM
    assert 1 in sizes(points) or sizes(points) == [2]


def test_a_data_set_smaller_than_the_first_size_caps_it():
    points, _ = run(SHAPES["flat"], memory(0.1, 1), GIB, smallest=1, cap=1)
    assert sizes(points) == [1]


def test_explicit_sizes_are_tried_in_their_order_and_no_others():
    view = schedule.View(points=(), explicit=(8, 2, 4))
    assert schedule.next_step(view).micro_batch_size == 8
    done = [
        outcome(schedule.Step(micro_batch_size=b, stage=schedule.Stage.EXPLICIT), float, int, GIB)
        for b in (8, 2, 4)
    ]
    assert schedule.next_step(schedule.View(points=tuple(done), explicit=(8, 2, 4))) is None


def test_one_slow_moment_does_not_end_the_growth():
    """A noisy second size, whose interval says so, is no evidence that throughput falls."""
    points, _ = run(lambda b: 0.05 + 0.01 * b, memory(0.1, 1), 8 * GIB, spread=0.3)
    assert max(sizes(points)) >= 16


@settings(max_examples=50, deadline=None)
@given(
    floor=st.floats(0.001, 1.0),
    slope=st.floats(1e-5, 0.1),
    cliff=st.integers(1, 2000),
    factor=st.floats(0.5, 4.0),
    base=st.floats(0.0, 2.0),
    per_sample=st.floats(0.01, 2000.0),
    limit=st.floats(0.5, 64.0),
    cap=st.none() | st.integers(1, 5000),
    find_max=st.booleans(),
    smallest=st.sampled_from([1, 2]),
)
def test_it_ends_and_never_repeats_nor_passes_a_known_limit(
    floor, slope, cliff, factor, base, per_sample, limit, cap, find_max, smallest
):
    points, _ = run(
        lambda b: (floor + slope * b) * (factor if b >= cliff else 1.0),
        memory(base, per_sample),
        int(limit * GIB),
        cap=cap,
        find_max=find_max,
        smallest=smallest if cap is None else min(smallest, cap),
    )
    tried = sizes(points)
    assert len(tried) == len(set(tried))
    too_big = math.inf
    for point in points:
        assert point.micro_batch_size < too_big
        assert cap is None or point.micro_batch_size <= cap
        if point.status is PointStatus.OOM:
            too_big = point.micro_batch_size


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(16, 64, 32), (16, 18, 17), (1, 4, 2), (64, 96, 80), (5, 6, None)]
)
def test_nice_between(low, high, expected):
    assert schedule.nice_between(low, high) == expected


@pytest.mark.parametrize("fits", [1, 2, 3, 5, 7])
def test_a_second_size_that_is_too_big_does_not_end_the_sweep(fits):
    points, largest = run(SHAPES["saturating"], memory(0.0, 100), fits * 100 * 2**20)
    assert schedule.largest_ok(tuple(points)) == fits
    assert largest.low <= fits <= largest.high


def test_sizes_that_fit_only_after_a_flush_bound_the_answer():
    """As on a GPU near its limit: usable up to 460, flushed up to 524."""
    points, largest = [], None
    while True:
        step = schedule.next_step(
            schedule.View(points=tuple(points), largest=largest, find_max=True)
        )
        if step is None:
            break
        point = outcome(step, SHAPES["flat"], memory(0.3, 15), 8 * GIB)
        if point.micro_batch_size > 460 and point.status is PointStatus.OK:
            point = replace(point, alloc_retries=2)
        points.append(point)
        largest = largest_size(points, 8 * GIB, None)
    good = schedule.largest_ok(tuple(points))
    assert 0.94 * 460 <= good <= 460
