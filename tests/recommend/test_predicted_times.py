"""Recommending from predicted times: every time is wide, and sizes are told apart all the same."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recommend_profiles import (
    GIB,
    MIB,
    Mode,
    Origin,
    PointStatus,
    Quantity,
    WorkloadSpec,
    affine,
    facts,
    foretold,
    predicted_point,
    timed_prediction,
)

from bsprof.predict.scenarios import WORLDS
from bsprof.recommend import recommend_plan, recommendation_document
from bsprof.recommend.curve import Curve, Part
from bsprof.records import DevicePeaks, Objective, PointPrediction, Regime, TimeWorlds

SHEET = DevicePeaks(
    flops_per_s={"fp32": 8e13},
    bandwidth_bytes_per_s=1e12,
    launch_s=2e-6,
    source="catalogue",
    device_key="rtx-4090",
)


def update(curve, size, count=1):
    """Seconds of that many micro-steps of a size and the optimizer step."""
    cost = {term: count * weight for term, weight in curve.micro_step(size).items()}
    return cost | curve.optimizer_step(size)


def test_two_sizes_differ_by_little_although_each_is_wide():
    curve = Curve.of(timed_prediction(affine(0.01, 0.01)))
    times = [curve.seconds(curve.micro_step(size)) for size in (16, 32)]
    assert all(0.5 < time.relative_width < 1.0 for time in times)
    excess = curve.excess(update(curve, 16, 2), update(curve, 32))
    assert excess.value == pytest.approx(0.35 / 0.34 - 1)
    assert excess.high - excess.low < 1e-9


def test_what_does_not_cancel_is_in_the_difference():
    profile = timed_prediction(affine(0.01, 0.01), times={"own_spread": 0.02})
    curve = Curve.of(profile)
    excess = curve.excess(update(curve, 16, 2), update(curve, 32))
    # Two independent relative errors of 2 %, at 1.645 standard deviations.
    half = (excess.high - excess.low) / 2
    assert half == pytest.approx(1.645 * 0.02 * 2**0.5, rel=0.25)


def test_seconds_are_those_of_the_worlds():
    curve = Curve.of(timed_prediction(affine(0.0, 0.01)))
    cost = update(curve, 32, 3)
    whole = curve.seconds(cost)
    assert whole.value == pytest.approx(3 * 0.32 + 0.01)
    outcomes = sorted(curve.outcomes(cost))
    assert outcomes[2] <= whole.low <= outcomes[3]
    assert outcomes[-4] <= whole.high <= outcomes[-3]


def test_between_two_sizes_the_bend_is_added():
    curve = Curve.of(timed_prediction(affine(0.1, 0.01)))
    between = curve.micro_step(12)
    assert (Part.BEND, 12) in between
    exact, bent = (curve.seconds(cost) for cost in (curve.micro_step(16), between))
    assert bent.relative_width > exact.relative_width
    assert curve.excess(between, curve.micro_step(16)).low < 0.22 / 0.26 - 1


def with_worlds(profile, change):
    points = []
    for point in profile.points:
        known = point.prediction
        worlds = None if known is None or known.worlds is None else change(point, known.worlds)
        points.append(replace(point, prediction=PointPrediction(worlds=worlds)))
    return replace(profile, points=tuple(points))


@pytest.mark.parametrize(
    "change",
    [
        lambda point, worlds: None if point.micro_batch_size == 8 else worlds,
        lambda point, worlds: (
            replace(worlds, micro_step_s=worlds.micro_step_s[:7])
            if point.micro_batch_size == 8
            else worlds
        ),
        lambda _point, worlds: replace(worlds, optimizer_step_s=()),
        lambda _point, _worlds: TimeWorlds(micro_step_s=()),
    ],
    ids=["one size has none", "other worlds", "a part has none", "none at all"],
)
def test_without_common_worlds_the_intervals_stand_alone(change):
    profile = with_worlds(timed_prediction(affine(0.01, 0.01)), change)
    curve = Curve.of(profile)
    assert curve.is_timed
    assert not curve.worlds
    assert curve.excess(update(curve, 16, 2), update(curve, 32)).high > 0.2
    assert recommend_plan(profile, target_batch=256).plan.step_time_s is not None


def test_a_tie_in_all_worlds_goes_to_the_smaller():
    plan = recommend_plan(timed_prediction(lambda b: 0.01 * b + 1e-5), target_batch=256).plan
    assert plan.micro_batch_size < 8
    assert plan.step_time_s.relative_width > 0.5


def test_size_and_steps_are_those_of_the_least_predicted_time():
    answer = recommend_plan(
        timed_prediction(affine(0.02, 0.01), facts=facts(), peaks=SHEET), target_batch=256
    )
    assert (answer.plan.micro_batch_size, answer.plan.accumulation_steps) == (64, 4)
    assert answer.plan.step_time_s.value == pytest.approx(4 * 0.66 + 0.01)
    assert not answer.plan.confirmed
    assert [a.plan.micro_batch_size for a in answer.alternatives][:2] == [32, 16]
    assert recommendation_document(answer)["alternatives"][0]["slower_by"]["value"] > 0.01


def said(answer):
    return " ".join(
        [
            *answer.reasons,
            *(a.reason for a in answer.alternatives),
            *(f"{n.message} {n.hint}" for n in (*answer.notes, *answer.advice)),
        ]
    )


def test_no_sentence_calls_a_prediction_measured():
    text = said(recommend_plan(timed_prediction(affine(0.02, 0.01)), target_batch=256))
    for false in ("was measured", "measured size", "ran again", "run again", "confirmed", "noise"):
        assert false not in text, false
    assert "predicted to take 2.65 s (" in text
    assert "Of 7 predicted sizes that fit, 64 is predicted to take the least time" in text
    assert "not measured on this device" in text
    assert "holds no time" not in text


def test_it_says_how_sure_it_is_of_the_time_and_of_the_size():
    reasons = recommend_plan(timed_prediction(affine(0.02, 0.01)), target_batch=256).reasons
    assert reasons[-1].startswith(
        "How sure: these times are predicted, and nothing was run; the time is known to within 3"
    )
    assert reasons[-1].endswith(
        "with probability 98 % no predicted size that fits is more than 1.0 % faster."
    )
    near = timed_prediction(
        lambda b: 0.01 * b + (0.001 if b < 64 else 0), times={"own_spread": 0.1}
    )
    unsure = recommend_plan(near, target_batch=256).reasons[-1]
    share = int(unsure.split("with probability ")[1].split(" %")[0])
    assert 5 < share < 60


def test_without_worlds_nothing_is_said_of_the_size():
    profile = with_worlds(timed_prediction(affine(0.02, 0.01)), lambda *_: None)
    assert "probability" not in recommend_plan(profile, target_batch=256).reasons[-1]
    least = recommend_plan(
        timed_prediction(affine(0.02, 0.01)), target_batch=256, objective=Objective.MEMORY
    )
    assert "probability" not in least.reasons[-1]


def test_what_binds_is_told_with_its_number():
    def bound(regime, **known):
        profile = timed_prediction(affine(0.02, 0.01), peaks=SHEET)
        points = tuple(
            replace(
                p,
                regime=regime,
                mfu=Quantity.exact(0.33),
                prediction=replace(p.prediction or PointPrediction(), **known),
            )
            for p in profile.points
        )
        return " ".join(recommend_plan(replace(profile, points=points), target_batch=256).reasons)

    compute = bound(Regime.COMPUTE)
    assert "at 64 arithmetic limits it (33 % of the data sheet's peak FLOP/s)" in compute
    launch = bound(Regime.LAUNCH, host_s=0.6, seconds_by_class={"matmul": 0.2, "copy": 0.1})
    assert "(the host needs 600 ms to start what the device runs in 300 ms)" in launch
    device = bound(Regime.LAUNCH, host_s=0.1, seconds_by_class={"matmul": 0.2})
    assert "the cost of starting operators limits it (33 % of the data sheet's" in device


def test_a_predicted_tie_that_is_not_shown_is_to_be_measured():
    def seconds(size):
        return 0.01 * size + (0.0005 if size == 32 else 0.02 if size < 32 else 0.0)

    profile = timed_prediction(seconds, times={"own_spread": 0.01})
    notes = {n.code: n for n in recommend_plan(profile, target_batch=256).notes}
    hint = notes["tie-undecided"].hint
    assert "bsprof sweep --model gpt-tiny --device cuda --micro-batch-sizes 32,64" in hint
    assert hint.endswith("measures both on such a device")


def test_ranks_of_a_prediction_for_one():
    profile = timed_prediction(affine(0.02, 0.01), facts=facts())
    [note] = [
        n
        for n in recommend_plan(profile, target_batch=256, world_size=4).notes
        if n.code == "synchronisation-not-measured"
    ]
    assert note.message.startswith("The profile was predicted for one rank: the time to sync")
    assert "--device rtx-4090 --world-size 4 --parallel ddp predicts it for 4 ranks" in note.hint
    other = replace(profile, ranks=2, parallel="ddp")
    [note] = [
        n
        for n in recommend_plan(other, target_batch=256, world_size=4).notes
        if n.code == "other-world-size"
    ]
    assert note.message.startswith("Time and memory were predicted for 2 ranks")


def test_inference_has_no_optimizer_step():
    profile = timed_prediction(
        affine(0.02, 0.01),
        times={"optimizer_s": None},
        workload=WorkloadSpec(model="gpt-tiny", mode=Mode.INFER),
    )
    answer = recommend_plan(profile)
    assert answer.plan.micro_batch_size == 64
    assert answer.plan.step_time_s.value == pytest.approx(0.66)
    assert "1 forward pass of 64" in answer.reasons[0]


def test_a_size_between_two_predicted_ones_is_not_called_slow_where_it_is_not():
    profile = timed_prediction(lambda _: 0.01, (1, 64))
    answer = recommend_plan(profile, target_batch=48, objective=Objective.MEMORY)
    assert answer.plan.micro_batch_size == 1
    assert "1 is the fastest, and no smaller size takes at most 5.0 % longer" in answer.reasons[1]
    [between] = answer.alternatives
    assert between.plan.interpolated
    assert between.slower_by.high < -0.5
    assert between.reason.endswith("but not predicted itself.")


@settings(max_examples=30, deadline=None)
@given(st.floats(0.0, 0.4), st.floats(0.0, 0.05), st.floats(0.0, 0.1))
def test_differences_are_never_wider_than_times(machine, own, offset):
    profile = timed_prediction(
        affine(offset, 0.01), times={"machine_spread": machine, "own_spread": own}
    )
    curve = Curve.of(profile)
    for a, b in itertools.pairwise(curve.sizes):
        excess = curve.excess(curve.micro_step(a), curve.micro_step(b), b / a)
        assert excess.low <= excess.value <= excess.high
        width = (excess.high - excess.low) / (1 + excess.value)
        assert width <= curve.seconds(curve.micro_step(a)).relative_width + 3.5 * own + 1e-9
        assert len(curve.outcomes(curve.micro_step(a))) == WORLDS


def test_memory_alone_is_still_answered():
    points = (predicted_point(8, 2 * GIB), predicted_point(16, 4 * GIB))
    profile = replace(timed_prediction(affine(0.02, 0.01)), points=points)
    answer = recommend_plan(profile, target_batch=64)
    assert answer.plan.step_time_s is None
    timed = replace(profile, points=(foretold(points[0], 0.1), points[1]))
    assert recommend_plan(timed, target_batch=64).plan.micro_batch_size == 8
    assert profile.origin is Origin.PREDICTED
    assert points[0].status is PointStatus.OK
    assert points[0].device_used_bytes.value > MIB
