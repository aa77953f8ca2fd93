"""Profiles to the data of a report: fits, curves, labels, and what cannot be fitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsprof.errors import UsageError
from bsprof.recommend.compare import compare_profiles
from bsprof.records import Phase, Precision, Profile, Recommendation
from bsprof.report import SampledCurve, build_report
from bsprof.report.build import sampled_sizes

MIB = 2**20


def test_curves_follow_the_points_and_carry_their_interval(profile: Profile) -> None:
    (view,) = build_report([("a", profile)]).views
    assert view.problems == ()
    assert view.micro_step is not None
    assert view.throughput is not None
    for point in profile.ok_points():
        assert point.micro_step_s is not None
        fitted = view.micro_step.at(point.micro_batch_size)
        assert fitted == pytest.approx(point.micro_step_s.value, rel=0.03)
        rate = view.throughput.at(point.micro_batch_size)
        assert rate == pytest.approx(point.micro_batch_size / point.micro_step_s.value, rel=0.03)
    for curve in (view.micro_step, view.throughput):
        assert curve.sizes[0] == 1
        assert curve.sizes[-1] == 64
        rows = zip(curve.lows, curve.values, curve.highs, strict=True)
        assert all(low <= value <= high for low, value, high in rows)


def test_memory_is_drawn_by_phase_as_far_as_the_size_that_failed(profile: Profile) -> None:
    (view,) = build_report([("a", profile)]).views
    assert view.memory is not None
    assert set(view.memory_by_phase) == {
        Phase.FORWARD_BACKWARD,
        Phase.ACCUMULATION,
        Phase.OPTIMIZER_STEP,
    }
    assert view.memory.sizes[-1] == 80
    assert view.memory.measured_to == 64
    assert view.memory.at(32) == pytest.approx((156 + 32 * 39) * MIB, rel=0.02)
    assert view.memory_by_phase[Phase.OPTIMIZER_STEP].at(32) == pytest.approx(
        (240 + 32 * 2) * MIB, rel=0.05
    )


def test_a_far_extrapolation_is_not_drawn(profile_of: Callable[..., Profile]) -> None:
    (view,) = build_report([("a", profile_of((1, 2, 4, 8), (500,)))]).views
    assert view.memory is not None
    assert view.memory.sizes[-1] == 80


@pytest.mark.parametrize(("sizes", "failed"), [((8,), ()), ((), (1, 2)), ((), ())])
def test_what_cannot_be_fitted_is_said_and_not_drawn(
    profile_of: Callable[..., Profile], sizes: tuple[int, ...], failed: tuple[int, ...]
) -> None:
    (view,) = build_report([("a", profile_of(sizes, failed))]).views
    assert view.time_fit is None
    assert view.throughput is None
    assert view.knee is None
    assert any("times" in problem for problem in view.problems)


def test_points_without_memory_still_give_their_times(profile: Profile) -> None:
    bare = replace(
        profile,
        points=tuple(
            replace(p, memory=None, device_used_bytes=None, peak_by_category_bytes={})
            for p in profile.points
        ),
        max_micro_batch_size=None,
    )
    (view,) = build_report([("a", bare)]).views
    assert view.throughput is not None
    assert view.memory is None
    assert any("memory" in problem for problem in view.problems)


def test_the_recommendation_finds_its_profile(
    profile_of: Callable[..., Profile], recommendation_of: Callable[..., Recommendation]
) -> None:
    one, two = ("a", profile_of()), ("b", profile_of(device="Other"))
    assert build_report([one], recommendation_of()).chosen == 0
    assert build_report([one, two], recommendation_of(profile="b")).chosen == 1
    assert build_report([one, two], recommendation_of(profile="z")).chosen is None
    assert build_report([one], recommendation_of(profile="z")).chosen is None
    data = build_report([one, two], recommendation_of(profile="b"))
    assert [data.chosen_size(view) for view in data.views] == [None, 16]


def test_labels_are_the_shortest_that_differ(profile_of: Callable[..., Profile]) -> None:
    first = profile_of()

    def labels(*others: Profile) -> list[str]:
        named = [(f"name{i}", p) for i, p in enumerate((first, *others))]
        return [view.label for view in build_report(named).views]

    assert labels() == ["gpt-tiny"]
    assert labels(profile_of(model="mlp")) == ["gpt-tiny", "mlp"]
    assert labels(profile_of(device="Other")) == ["AMD EPYC 9B14", "Other"]
    bf16 = replace(first, workload=replace(first.workload, precision=Precision.AMP_BF16))
    assert labels(bf16) == ["fp32", "amp-bf16"]
    assert labels(first) == ["name0", "name1"]
    same = build_report([("x", first), ("x", first)])
    assert [view.label for view in same.views] == ["1: x", "2: x"]


def test_several_profiles_are_compared(profile_of: Callable[..., Profile]) -> None:
    pair = [("a", profile_of()), ("b", profile_of(device="Other"))]
    assert build_report(pair[:1]).comparison is None
    found = build_report(pair).comparison
    assert found is not None
    assert not found.has_target
    asked = compare_profiles(pair, target_batch=96)
    assert build_report(pair, comparison=asked).comparison is asked


def test_titles(profile_of: Callable[..., Profile]) -> None:
    assert build_report([("a", profile_of((1,), ()))]).title == "gpt-tiny on AMD EPYC 9B14"
    nameless = build_report([("a", profile_of((1,), (), device=""))])
    assert nameless.title == "gpt-tiny on cpu"


def test_no_profile_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="at least one profile"):
        build_report([])


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5000), st.integers(0, 5000))
def test_sampled_sizes_increase_and_keep_both_ends(low: int, more: int) -> None:
    sizes = sampled_sizes(low, low + more)
    assert (sizes[0], sizes[-1]) == (low, low + more)
    assert list(sizes) == sorted(set(sizes))
    assert len(sizes) <= 81


def test_a_curve_is_linear_between_its_samples_and_ends_there() -> None:
    curve = SampledCurve(
        sizes=(2, 4, 8),
        values=(1.0, 3.0, 5.0),
        lows=(0.0, 2.0, 4.0),
        highs=(2.0, 4.0, 6.0),
        measured_to=4,
    )
    assert [curve.at(b) for b in (1, 2, 3, 6, 8, 9)] == [None, 1.0, 2.0, 4.0, 5.0, None]
    assert curve.up_to(4).sizes == (2, 4)
    assert curve.beyond(4).values == (3.0, 5.0)
    assert curve.scaled(2.0).highs == (4.0, 8.0, 12.0)
