"""A loader's rate at any batch size, held against what training takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsprof.fit.loader import Verdict, by_workers, supply
from bsprof.records import LoaderPoint, Quantity, per_second


def around(value, share=0.02):
    return Quantity(value=value, low=value * (1 - share), high=value * (1 + share))


def point(workers, rate, *, size=32, prefetch=None, share=0.02):
    return LoaderPoint(
        batch_size=size,
        num_workers=workers,
        prefetch_factor=prefetch or (2 if workers else None),
        samples_per_s=around(rate, share),
        first_batch_s=0.1,
    )


def test_nothing_measured_says_nothing():
    assert supply((), 32, around(100.0)) is None


def test_the_fewest_workers_that_surely_keep_up():
    points = [point(0, 900.0), point(1, 800.0), point(2, 1020.0), point(4, 3000.0)]
    found = supply(points, 32, around(1000.0))
    assert found.verdict is Verdict.KEEPS_UP
    assert found.fewest.num_workers == 4
    assert found.perhaps.num_workers == 2
    assert found.best.num_workers == 2  # expected to be enough already


def test_a_loader_that_is_too_slow_and_one_that_is_too_close_to_tell():
    slow = supply([point(0, 500.0), point(1, 400.0), point(2, 700.0)], 32, around(1000.0))
    assert slow.verdict is Verdict.WAITS
    assert slow.fewest is None
    assert slow.perhaps is None
    assert slow.best.num_workers == 2
    near = supply([point(1, 990.0)], 32, around(1000.0))
    assert near.verdict is Verdict.UNCLEAR
    assert near.fewest is None
    assert near.perhaps.num_workers == 1


def test_without_workers_loading_is_waiting_unless_it_costs_next_to_nothing():
    assert supply([point(0, 5000.0)], 32, around(1000.0)).verdict is Verdict.WAITS
    assert supply([point(0, 2e5)], 32, around(1000.0)).verdict is Verdict.KEEPS_UP
    # Cheap samples that are costly to pass between processes: 1/1000 + 1/20000 beats 1/900.
    found = supply([point(0, 20_000.0), point(2, 900.0)], 32, around(1000.0))
    assert found.best.num_workers == 0
    assert found.verdict is Verdict.WAITS


def test_the_better_prefetch_counts():
    points = [point(2, 700.0), point(2, 1500.0, prefetch=4)]
    found = supply(points, 32, around(1000.0))
    assert [r.prefetch_factor for r in found.rates] == [4]
    other = supply([*points, point(2, 600.0, size=8)], 8, around(1000.0))
    assert [(r.prefetch_factor, r.measured) for r in other.rates] == [(2, True)]


def test_between_two_sizes_the_seconds_of_a_batch_are_affine():
    def rate(size):
        return size / (0.004 + 0.001 * size)

    points = [point(1, rate(8), size=8, share=0.0), point(1, rate(32), size=32, share=0.0)]
    (found,) = supply(points, 20, around(1000.0)).rates
    assert found.samples_per_s.value == pytest.approx(rate(20))
    assert not found.measured
    (below,) = supply(points, 2, around(1000.0)).rates
    assert below.samples_per_s.value == pytest.approx(rate(8))
    (above,) = supply(points, 64, around(1000.0)).rates
    assert above.samples_per_s.value == pytest.approx(rate(32))


@given(
    seconds=st.tuples(*[st.floats(1e-4, 10.0)] * 2),
    shares=st.tuples(*[st.floats(0.0, 0.9)] * 2),
    size=st.integers(1, 64),
)
def test_a_rate_between_lies_between_and_keeps_its_order(seconds, shares, size):
    small, large = (
        per_second(1.0, around(s, share)) for s, share in zip(seconds, shares, strict=True)
    )
    points = [
        LoaderPoint(batch_size=b, num_workers=1, samples_per_s=q, first_batch_s=0.0)
        for b, q in ((4, small), (32, large))
    ]
    (rate,) = supply(points, size, around(100.0)).rates
    found = rate.samples_per_s
    assert found.low <= found.value <= found.high
    ends = sorted((small.value, large.value))
    assert ends[0] * (1 - 1e-9) <= found.value <= ends[1] * (1 + 1e-9)


@given(
    rates=st.lists(st.tuples(st.integers(0, 8), st.floats(1.0, 1e5)), min_size=1, max_size=6),
    need=st.floats(1.0, 1e5),
)
def test_verdicts_agree_with_each_other(rates, need):
    found = supply([point(n, r) for n, r in dict(rates).items()], 32, around(need))
    assert (found.verdict is Verdict.KEEPS_UP) == (found.fewest is not None)
    if found.fewest is not None and found.perhaps is not None:
        assert found.perhaps.num_workers < found.fewest.num_workers
    assert found.best in found.rates


def test_words():
    assert [by_workers(n) for n in (0, 1, 4)] == [
        "without workers",
        "with 1 worker",
        "with 4 workers",
    ]
