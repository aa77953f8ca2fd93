"""Times and memory between measured sizes, and differences of update times."""

import random
import statistics

import pytest
from recommend_profiles import (
    GIB,
    MIB,
    Origin,
    Point,
    PointStatus,
    Quantity,
    Timing,
    affine,
    curve_profile,
    failed_point,
    noisy,
    ok_point,
    profile_of,
)

from bsprof.recommend.curve import ROUNDING_SHARE, Cost, Curve, usable_points
from bsprof.records import RankPieces, Regime


def curve(*points: Point, **more) -> Curve:
    return Curve.of(profile_of(points), **more)


def update(of: Curve, pieces, *, with_sync: bool) -> Cost:
    return of.update(RankPieces.of(pieces).runs, with_sync=with_sync)


def test_unusable_points_are_left_out():
    points = [
        ok_point(1, 0.1),
        ok_point(2, 0.2, alloc_retries=1),
        ok_point(3, 0.3, micro_steps_run=0),
        ok_point(4, 0.4, observed_micro_batch_size=2),
        Point(micro_batch_size=5, status=PointStatus.OK, micro_steps_run=3),
        failed_point(6, PointStatus.CRASHED),
    ]
    assert [p.micro_batch_size for p in usable_points(profile_of(points))] == [1]
    assert Curve.of(profile_of(points)).refused == {2, 3, 4, 5, 6}


def test_a_prediction_runs_no_step_and_is_usable():
    points = [ok_point(1, 0.1, micro_steps_run=0, observed_micro_batch_size=None)]
    assert len(usable_points(profile_of(points, origin=Origin.PREDICTED))) == 1


def test_update_time_is_the_formula_of_the_design():
    c = curve(
        ok_point(4, 0.3, micro_step_sync_s=Quantity.exact(0.35), optimizer_s=0.02),
        ok_point(2, 0.2, micro_step_sync_s=Quantity.exact(0.25), optimizer_s=0.03),
    )
    assert c.seconds(update(c, [4] * 5, with_sync=True)).value == pytest.approx(
        4 * 0.3 + 0.35 + 0.02
    )
    assert c.seconds(update(c, [4] * 5, with_sync=False)).value == pytest.approx(5 * 0.3 + 0.02)
    # A smaller last piece takes over the same extra for synchronising.
    assert c.seconds(update(c, [4, 2], with_sync=True)).value == pytest.approx(0.5 + 0.05 + 0.02)


def test_between_two_sizes_time_is_the_line_within_what_monotony_allows():
    c = curve(ok_point(4, 0.06), ok_point(8, 0.10))
    seconds = c.seconds(c.micro_step(6))
    assert seconds.value == pytest.approx(0.08)
    assert seconds.low == pytest.approx(0.10 * 6 / 8)  # no better than the larger one's rate
    assert seconds.high == pytest.approx(0.06 * 6 / 4)  # no worse than the smaller one's rate
    assert c.is_between(6)
    assert not c.is_between(4)


def test_a_piece_below_the_smallest_size_costs_between_its_share_and_the_whole():
    c = curve(ok_point(4, 0.06), ok_point(8, 0.10))
    seconds = c.seconds(c.micro_step(2))
    assert seconds.value == pytest.approx(0.04)
    assert (seconds.low, seconds.high) == (pytest.approx(0.03), pytest.approx(0.06))
    flat = curve(ok_point(4, 0.06), ok_point(8, 0.06))
    assert flat.seconds(flat.micro_step(2)).value == pytest.approx(0.06)
    steep = curve(ok_point(4, 0.06), ok_point(8, 0.20))
    assert steep.seconds(steep.micro_step(2)).value == pytest.approx(0.03)
    alone = curve(ok_point(4, 0.06))
    assert alone.seconds(alone.micro_step(2)).value == pytest.approx(0.06)


def test_a_measurement_that_both_plans_share_cancels():
    c = curve(
        ok_point(4, 0.06, half_width=0.10),
        ok_point(8, 0.10, half_width=0.10),
        ok_point(2, 0.05, half_width=0.01),
    )
    a = update(c, [8] * 10 + [4], with_sync=False)
    b = update(c, [8] * 10 + [2], with_sync=False)
    excess = c.excess(a, b)
    assert excess.value == pytest.approx(0.01 / 1.06)
    assert excess.high - excess.low < 0.02  # the two update times are known to 20 % each
    assert c.seconds(a).relative_width > 0.1
    same = c.excess(a, a)
    assert (same.value, same.low, same.high) == (0, 0, 0)


def test_what_slowed_a_whole_round_cancels():
    rng = random.Random(0)
    rounds = [1 + 0.2 * rng.random() for _ in range(11)]  # the machine is shared
    c = curve(
        ok_point(4, 0.4, samples=tuple(0.400 * r for r in rounds)),
        ok_point(8, 0.8, samples=tuple(0.796 * r for r in rounds)),
    )
    excess = c.excess(update(c, [4, 4], with_sync=False), update(c, [8], with_sync=False))
    assert excess.value == pytest.approx(0.005, rel=0.1)
    assert excess.high <= 0.01
    unequal = curve(
        ok_point(4, 0.4, samples=tuple(0.400 * r for r in rounds)),
        ok_point(8, 0.8, samples=tuple(0.796 * r for r in rounds[:-1])),
    )
    wide = unequal.excess(
        update(unequal, [4, 4], with_sync=False), update(unequal, [8], with_sync=False)
    )
    assert wide.high > 0.01


def test_the_interval_of_a_difference_covers_the_truth():
    rng = random.Random(4)
    hits = 0
    for _ in range(200):
        counts = rng.choice([(9, 9), (9, 12)])
        samples = [noisy(rng, t, 0.02, n) for t, n in zip((0.40, 0.79), counts, strict=True)]
        c = curve(*(ok_point(b, 1, samples=s) for b, s in zip((4, 8), samples, strict=True)))
        cost = [update(c, pieces, with_sync=False) for pieces in ([4] * 20, [8] * 10)]
        excess = c.excess(*cost)
        truth = (20 * 0.40 + 0.01) / (10 * 0.79 + 0.01) - 1
        hits += excess.low <= truth <= excess.high
    assert 170 <= hits <= 200  # 90 % of 200 is 180


def test_medians_come_from_raw_samples():
    c = curve(ok_point(4, 99.0, samples=(0.4, 0.41, 0.42, 0.43, 0.9)))
    assert c.seconds(c.micro_step(4)).value == pytest.approx(0.42)
    timing = Timing(micro_step_samples_s=(1.0,), optimizer_step_samples_s=(0.2, 0.1, 0.3))
    c = curve(ok_point(4, 99.0, timing=timing))
    assert c.seconds(update(c, [4], with_sync=False)).value == pytest.approx(
        1.0 + statistics.median([0.1, 0.2, 0.3])
    )


def test_memory_between_two_sizes_is_the_chord_and_a_margin():
    c = curve(ok_point(4, 1, used_bytes=GIB), ok_point(8, 2, used_bytes=2 * GIB))
    used = c.used_bytes(6)
    assert used is not None
    assert used.value == pytest.approx(1.5 * GIB)
    assert used.high == pytest.approx(1.5 * GIB * (1 + ROUNDING_SHARE))
    near = c.used_bytes(7)
    assert near is not None
    assert near.high <= 2 * GIB
    assert c.used_bytes(2) == c.used_bytes(4)
    assert c.used_bytes(9) is None


def test_the_ceiling_never_falls():
    c = curve(
        ok_point(4, 1, used_bytes=GIB),
        ok_point(8, 2, used_bytes=2 * GIB),
        ok_point(16, 4, used_bytes=1.5 * GIB),  # another algorithm with less workspace
    )
    ceilings = [c.ceiling_bytes(size) for size in range(1, 17)]
    assert ceilings == sorted(ceilings)
    assert ceilings[-1] == 2 * GIB


def test_extra_bytes_count_at_the_upper_end():
    c = curve(ok_point(4, 1, used_bytes=GIB), extra_bytes=MIB)
    assert c.used_bytes(4) == Quantity(value=GIB + MIB, low=GIB, high=GIB + MIB)


def test_nothing_is_promised_around_a_failure():
    c = Curve.of(curve_profile([2, 16, 32], affine(0, 1), failed=[8, 64]))
    assert [n for n in range(70) if c.is_safe(n)] == [1, 2, *range(16, 33)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"device_used_bytes", "peak_allocated_bytes"}, "device_used_bytes"),
        ({"peak_reserved_bytes", "peak_allocated_bytes"}, "peak_reserved_bytes"),
        ({"peak_allocated_bytes"}, "peak_allocated_bytes"),
        (set(), None),
    ],
)
def test_the_best_known_peak_is_used(given, expected):
    c = curve(ok_point(4, 1, **{name: Quantity.exact(GIB) for name in given}))
    assert c.memory_field == expected
    assert c.ceiling_bytes(4) == (GIB if expected else 0)


def test_regime_between_sizes_is_known_where_the_neighbours_agree():
    c = curve(
        ok_point(4, 1, regime=Regime.LAUNCH),
        ok_point(8, 1, regime=Regime.LAUNCH),
        ok_point(16, 1, regime=Regime.COMPUTE),
    )
    assert [c.regime(n) for n in (4, 6, 8, 12, 16)] == [
        Regime.LAUNCH,
        Regime.LAUNCH,
        Regime.LAUNCH,
        Regime.UNKNOWN,
        Regime.COMPUTE,
    ]
