from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from fit_points import timed_point

from bsprof.fit.knee import knee_from_points, measured_rates, throughput_shape
from bsprof.records import Point, PointStatus, Quantity, Saturation

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
CURVES: dict[str, tuple[Callable[[int], float], Saturation, float | None]] = {
    # name: time of a micro-step in ms, verdict, knee of 95 % in samples (None: not stated)
    "rising": (lambda b: 20 + b, Saturation.RISING, None),
    "saturated": (lambda b: 2 + b, Saturation.SATURATED, 38),
    "late": (lambda b: 4 + b, Saturation.SATURATED, 76),
    "floor": (lambda b: max(8, b), Saturation.SATURATED, 7.6),
    "flat": (lambda b: b, Saturation.FLAT, 1),
    "falling": (lambda b: b * (1 + 0.002 * b), Saturation.FALLING, 1),
    "cliff": (lambda b: (2 + b) * (1.4 if b > 64 else 1), Saturation.SATURATED, None),
}


def curve_points(
    form: Callable[[int], float], noise: float, rng: random.Random, count: int = 7
) -> list[Point]:
    return [
        timed_point(b, [1e-3 * form(b) * rng.lognormvariate(0, noise) for _ in range(count)])
        for b in SIZES
    ]


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03])
@pytest.mark.parametrize("name", CURVES)
def test_verdict_and_knee_across_noise(name: str, noise: float) -> None:
    form, verdict, knee = CURVES[name]
    rng = random.Random(11)
    right, covered, knees = 0, 0, 0
    for _ in range(100):
        shape = throughput_shape(curve_points(form, noise, rng))
        right += shape.saturation is verdict
        if shape.knee is not None and knee is not None:
            knees += 1
            covered += shape.knee.low <= knee <= shape.knee.high
    assert right >= 95
    if knee is None and verdict is Saturation.RISING:
        assert knees == 0
    if knee is not None:
        assert knees >= 95
        assert covered / knees >= 0.85


def test_knee_of_a_clean_line_is_that_of_the_formula() -> None:
    # t = t0 + c*b reaches a share f at b = f/(1-f) * t0/c.
    points = curve_points(lambda b: 2 + b, 0.0, random.Random(0))
    for share in (0.8, 0.9, 0.95):
        knee = knee_from_points(points, share)
        assert knee is not None
        assert knee.value == pytest.approx(share / (1 - share) * 2, rel=0.01)
        assert knee.low < knee.value < knee.high


def test_a_slow_down_at_the_end_does_not_hide_the_best_size() -> None:
    points = curve_points(CURVES["cliff"][0], 0.0, random.Random(0))
    knee = knee_from_points(points)
    assert knee is not None
    assert 15 <= knee.low <= knee.value <= knee.high <= 64


def test_points_that_cannot_be_used_are_left_out() -> None:
    good = [timed_point(b, [1e-3 * (20 + b)] * 3) for b in (4, 8)]
    others = [
        timed_point(64, [1e-6] * 3, alloc_retries=1),
        Point(micro_batch_size=128, status=PointStatus.OOM, micro_step_s=Quantity.exact(1e-6)),
        Point(micro_batch_size=16, status=PointStatus.OK),
    ]
    assert [rate.size for rate in measured_rates([*good, *others])] == [4, 8]


def test_the_more_precise_of_two_points_at_one_size_counts() -> None:
    rough = timed_point(8, [1.0, 1.3, 1.6])
    precise = timed_point(8, [1.2, 1.2, 1.2])
    for order in ([rough, precise], [precise, rough]):
        assert [rate.seconds for rate in measured_rates(order)] == [1.2]


def test_recorded_quantities_serve_where_raw_samples_are_missing() -> None:
    point = Point(
        micro_batch_size=8,
        status=PointStatus.OK,
        micro_step_s=Quantity(value=1.0, low=0.9, high=1.1),
    )
    (rate,) = measured_rates([point])
    assert rate.throughput == 8
    assert rate.error == pytest.approx(0.1 / 1.645, rel=0.01)


@pytest.mark.parametrize("sizes", [(), (4,), (4, 8), (4, 5, 6)])
def test_too_few_or_too_close_sizes_give_no_verdict(sizes: tuple[int, ...]) -> None:
    shape = throughput_shape([timed_point(b, [1.0 + b] * 3) for b in sizes])
    assert shape.saturation is Saturation.UNKNOWN
    assert shape.knee is None


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5])
def test_a_share_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="knee share"):
        knee_from_points([], share)
