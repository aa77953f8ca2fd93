"""Ties, noise, and the promises that hold for every profile (properties)."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recommend_profiles import (
    GIB,
    Mode,
    PointStatus,
    Quantity,
    affine,
    curve_profile,
    facts,
    failed_point,
    noisy,
    ok_point,
    profile_of,
)

from bsprof.errors import MeasurementError, NoFeasibleBatch
from bsprof.recommend import recommend_plan
from bsprof.records import Objective, WorkloadSpec


def saturated(size):
    """Throughput within 0.4 % of its best from 16 on."""
    return 0.01 * size * (1.004 if size == 16 else 1.0 if size > 16 else 1.2)


def test_a_tie_goes_to_the_smaller_micro_batch():
    answer = recommend_plan(curve_profile([8, 16, 32, 64], saturated), target_batch=1024)
    assert answer.plan.micro_batch_size == 16
    assert "32 is the fastest, but 16 is at most 0.4 % slower" in answer.reasons[1]
    reasons = {a.plan.micro_batch_size: a.reason for a in answer.alternatives}
    assert reasons[64] == "As fast to within 1.0 %, and the smaller micro-batch wins ties."


def test_noise_never_widens_a_tie():
    noisy_profile = curve_profile([8, 16, 32, 64], saturated, half_width=0.02)
    answer = recommend_plan(noisy_profile, target_batch=1024)
    assert answer.plan.micro_batch_size == 32
    (note,) = [n for n in answer.notes if n.code == "tie-undecided"]
    assert note.micro_batch_size == 16
    assert "expected 0.4 % slower" in note.message


def test_more_than_one_percent_is_no_tie():
    answer = recommend_plan(
        curve_profile([16, 32], lambda b: b * (1.011 if b == 16 else 1.0)), target_batch=1024
    )
    assert answer.plan.micro_batch_size == 32


def test_paired_rounds_decide_what_medians_cannot():
    rng = random.Random(1)
    rounds = [1 + 0.1 * rng.random() for _ in range(11)]
    points = [
        ok_point(b, saturated(b), samples=tuple(saturated(b) * r for r in rounds)) for b in (16, 32)
    ]
    answer = recommend_plan(profile_of(points), target_batch=1024)
    assert answer.plan.micro_batch_size == 16
    assert answer.plan.step_time_s.relative_width > 0.02


def test_slower_by_is_measured_against_the_chosen():
    answer = recommend_plan(
        curve_profile([16, 32, 64], affine(0.1, 0.01), half_width=0.01), target_batch=1024
    )
    chosen = answer.plan.step_time_s.value
    assert [a.plan.micro_batch_size for a in answer.alternatives] == [32, 16]
    for other in answer.alternatives:
        expected = other.plan.step_time_s.value / chosen - 1
        assert other.slower_by.value == pytest.approx(expected)
        assert other.slower_by.low < expected < other.slower_by.high


def test_an_answer_that_more_memory_would_keep_is_kept():
    # 16 ties with 32, but nothing can be said of 24, which was measured badly.
    points = [
        ok_point(b, 0.01 * b * factor, half_width=width, used_bytes=b * GIB / 16)
        for b, factor, width in [(16, 1.001, 0.001), (24, 1.0005, 0.03), (32, 1.0, 0.001)]
    ]
    profile = profile_of(points)
    ample = recommend_plan(profile, target_batch=96, headroom=0.0)
    assert ample.plan.micro_batch_size == 16
    scarce = recommend_plan(profile, target_batch=96, headroom=0.4)  # 32 no longer fits
    assert scarce.plan.micro_batch_size == 16
    assert scarce.alternatives[1].reason.endswith("too uncertain to prefer the larger micro-batch.")
    assert "of the fastest, 24, and would be the answer with more memory" in scarce.reasons[1]


def test_why_the_others_lost():
    memory = recommend_plan(
        curve_profile([16, 32, 64], affine(0.01, 0.005)), target_batch=2048, objective="memory"
    )
    assert memory.plan.micro_batch_size == 32
    assert memory.alternatives[0].reason == "2.9 % faster, but needs more memory."
    spec = WorkloadSpec(model="x", compile=True)
    # 40 is a little faster than 64, but leaves a last piece of 8.
    factors = {8: 1.05, 40: 0.995, 64: 1.0}
    answer = recommend_plan(
        curve_profile(factors, lambda b: 0.01 * b * factors[b], workload=spec), target_batch=128
    )
    assert answer.plan.pieces_by_rank == ((64, 64),)
    assert "40 ties with it, but has pieces of a second size" in answer.reasons[1]
    reasons = {a.plan.micro_batch_size: a.reason for a in answer.alternatives}
    assert reasons[40] == (
        "0.2 % faster, but needs a second piece size, which costs extra to prepare."
    )


TIMES = st.floats(0.5, 2.0)


@st.composite
def profiles(draw):
    """Any mix of outcomes; times and memory follow no law, samples may be noisy."""
    sizes = draw(st.lists(st.integers(1, 96), min_size=1, max_size=8, unique=True))
    rng = random.Random(draw(st.integers(0, 10_000)))
    noise = draw(st.sampled_from([0.0, 0.005, 0.05]))
    count = draw(st.sampled_from([0, 1, 6, 9]))
    points = []
    for size in sizes:
        status = draw(st.sampled_from([PointStatus.OK] * 4 + list(PointStatus)))
        if status is not PointStatus.OK:
            points.append(failed_point(size, status))
            continue
        seconds = (0.05 + 0.01 * size) * draw(TIMES) if draw(st.booleans()) else 0.01 * size
        used = draw(st.floats(0.01, 3.2)) * GIB
        points.append(
            ok_point(
                size,
                seconds,
                half_width=noise,
                samples=noisy(rng, seconds, noise, count),
                alloc_retries=draw(st.sampled_from([0, 0, 0, 1])),
                device_used_bytes=Quantity(value=used, low=used, high=used * 1.01),
            )
        )
    return profile_of(
        points,
        workload=WorkloadSpec(
            model="x",
            mode=draw(st.sampled_from([Mode.TRAIN, Mode.TRAIN, Mode.INFER])),
            compile=draw(st.booleans()),
        ),
        facts=facts(batch_norm_modules=draw(st.sampled_from([0, 2]))),
    )


QUESTIONS = st.fixed_dictionaries(
    {
        "target_batch": st.integers(8, 300),
        "world_size": st.integers(1, 8),
        "tolerance": st.sampled_from([0.0, 0.0, 0.02, 0.2]),
        "objective": st.sampled_from(list(Objective)),
    }
)


def answer_or_none(profile, **question):
    try:
        return recommend_plan(profile, **question)
    except (NoFeasibleBatch, MeasurementError):
        return None


@settings(max_examples=50, deadline=None)
@given(profiles(), QUESTIONS, st.floats(0, 0.9))
def test_what_every_plan_keeps(profile, question, headroom):
    answer = answer_or_none(profile, headroom=headroom, **question)
    if answer is None:
        return
    plan, target = answer.plan, question["target_batch"]
    pieces = [piece for rank in plan.pieces_by_rank for piece in rank]
    # The pieces sum to the target, or are equal and within the tolerance.
    assert sum(pieces) == plan.effective_batch_size
    if plan.effective_batch_size != target:
        assert abs(plan.effective_batch_size - target) <= question["tolerance"] * target
        assert len(set(pieces)) == 1
    assert len(plan.pieces_by_rank) == question["world_size"]
    assert plan.micro_batch_size == max(pieces) <= -(-target // question["world_size"])
    # It never exceeds the limit.
    usable = profile.device.usable_bytes
    assert plan.device_used_bytes.high <= usable * (1 - headroom)
    assert plan.headroom_bytes >= int(usable * headroom) - 1
    # It never runs a size that failed; its own is measured, or marked and between two that were.
    fine = {p.micro_batch_size for p in profile.ok_points()}
    assert not set(pieces) & ({p.micro_batch_size for p in profile.points} - fine)
    if plan.interpolated:
        assert min(fine) < plan.micro_batch_size < max(fine)
    else:
        assert plan.micro_batch_size in fine
    assert max(pieces) <= max(fine)
    # No alternative is the same size; the text is there.
    assert plan.micro_batch_size not in {a.plan.micro_batch_size for a in answer.alternatives}
    assert all(reason.endswith(".") for reason in answer.reasons)


@settings(max_examples=50, deadline=None)
@given(profiles(), QUESTIONS, st.floats(0, 0.9), st.floats(0, 0.9))
def test_more_headroom_never_raises_the_micro_batch(profile, question, one, other):
    little, much = (
        answer_or_none(profile, headroom=headroom, **question) for headroom in sorted((one, other))
    )
    if much is None:
        return
    assert little is not None  # less headroom never takes an answer away
    assert much.plan.micro_batch_size <= little.plan.micro_batch_size


@settings(max_examples=50, deadline=None)
@given(profiles(), QUESTIONS)
def test_the_fastest_that_fits_is_at_most_a_percent_faster(profile, question):
    question["objective"] = Objective.TIME
    answer = answer_or_none(profile, headroom=0.0, **question)
    if answer is None:
        return
    limit = profile.device.usable_bytes
    for other in answer.alternatives:
        fits = not other.reason.startswith("Needs up to")
        assert fits or other.plan.device_used_bytes.high <= 1.1 * limit
        if fits and not other.plan.interpolated and not answer.plan.interpolated:
            assert other.slower_by.value >= -0.0100001
