"""Recommending from predicted memory: no time is known, so nothing is called the fastest."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recommend_profiles import (
    GIB,
    MIB,
    Mode,
    PointStatus,
    Quantity,
    facts,
    failed_point,
    ok_point,
    predicted_point,
    predicted_profile,
    profile_of,
)

from bsprof.errors import MeasurementError, NoFeasibleBatch
from bsprof.recommend import recommend_plan, recommendation_document
from bsprof.records import Change, Objective, Origin, Prediction, Recommendation, WorkloadSpec
from bsprof.records.codec import from_json, to_json

LIMIT = 0.95 * 23 * GIB


def needed(size, share=0.03):
    """Upper end of what a size needs in `predicted_profile`."""
    return (GIB + 200 * MIB * size) * (1 + share)


def test_the_largest_size_whose_upper_bound_leaves_the_headroom_wins():
    answer = recommend_plan(predicted_profile(), target_batch=2048)
    plan = answer.plan
    assert plan.effective_batch_size == 2048
    assert plan.device_used_bytes is not None
    assert plan.device_used_bytes.high <= LIMIT
    assert plan.micro_batch_size == 64
    assert plan.accumulation_steps == 32
    assert plan.step_time_s is None
    assert plan.samples_per_s is None
    assert answer.knee is None


def test_the_value_fits_but_its_upper_bound_does_not():
    points = [predicted_point(b, b * GIB, share=0.03) for b in (8, 16)]
    points.append(predicted_point(20, 21 * GIB, share=0.10))  # up to 23.1 of 21.85 GiB
    answer = recommend_plan(replace(predicted_profile(), points=tuple(points)), target_batch=320)
    assert answer.plan.micro_batch_size < 20
    assert answer.plan.device_used_bytes.high <= LIMIT


def test_between_two_sizes_that_fit_the_largest_within_the_limit_is_taken():
    profile = predicted_profile((1, 32, 128), failed=())
    plan = recommend_plan(profile, target_batch=10_000).plan
    assert plan.interpolated
    assert 32 < plan.micro_batch_size < 128
    steps = plan.accumulation_steps
    # One sample more per piece, as many as would save a step, does not fit any more.
    assert needed(10_000 // (steps - 1)) > LIMIT * 0.97
    assert plan.device_used_bytes.high <= LIMIT


def test_the_interval_between_two_sizes_is_bounded_by_the_lines_beside_them():
    points = [predicted_point(b, (2 + b) * GIB, share=0.01) for b in (1, 2, 16)]
    profile = replace(predicted_profile(), points=tuple(points))
    used = recommend_plan(profile, target_batch=30, headroom=0.2).plan.device_used_bytes
    assert used.value == pytest.approx(17 * GIB)
    assert used.low == pytest.approx(0.99 * 17 * 0.98 * GIB)
    assert used.high == pytest.approx(1.01 * 17 * 1.02 * GIB)


def test_nothing_is_interpolated_across_a_size_that_fits_only_after_a_flush():
    flushed = predicted_point(64, 20 * GIB, alloc_retries=1)
    points = [predicted_point(32, 8 * GIB), flushed, predicted_point(100, 21 * GIB)]
    profile = replace(predicted_profile(), points=tuple(points))
    for target in (2000, 2048, 6400):
        plan = recommend_plan(profile, target_batch=target).plan
        sizes = {size for rank in plan.pieces for size in rank.sizes}
        assert 64 not in sizes
        assert not any(32 < size < 100 for size in sizes)


def test_a_size_that_fits_only_after_a_flush_is_never_recommended():
    flushed = predicted_point(64, 13 * GIB, alloc_retries=1)
    profile = replace(predicted_profile(), points=(predicted_point(32, 7 * GIB), flushed))
    assert recommend_plan(profile, target_batch=2048).plan.micro_batch_size == 32


def test_pieces_of_one_size_win_at_equal_steps():
    plan = recommend_plan(predicted_profile(), target_batch=96).plan  # 64 + 32 or 48 + 48
    assert [kind.runs[0].size for kind in plan.pieces] == [48]
    assert plan.accumulation_steps == 2


def test_the_objective_memory_takes_the_fewest_steps_at_the_least_memory():
    level = [predicted_point(b, 5 * GIB) for b in (1, 2, 4, 8)]
    more = [predicted_point(b, 5 * GIB + (b - 8) * GIB) for b in (16, 20)]
    profile = replace(predicted_profile(), points=(*level, *more))
    plan = recommend_plan(profile, target_batch=320, objective=Objective.MEMORY).plan
    assert plan.micro_batch_size == 8
    by_time = recommend_plan(profile, target_batch=320)
    assert by_time.plan.micro_batch_size > 8


def test_nothing_claims_speed():
    answer = recommend_plan(predicted_profile(), target_batch=2048)
    texts = [*answer.reasons, *(a.reason for a in answer.alternatives)]
    texts += [f"{note.message} {note.hint}" for note in (*answer.notes, *answer.advice)]
    for text in texts:
        if "often not the fastest" not in text:
            assert "fastest" not in text, text
        assert "slower" not in text, text
        assert "throughput" not in text, text
    said = " ".join(texts)
    assert "The profile holds no time" in said
    assert "predict it anew, with times: bsprof sweep --model gpt-tiny --device rtx-4090" in said
    assert "not measured on this device" in said
    assert "torch 2.13" in said


def test_why_and_where_the_peak_is():
    reasons = recommend_plan(predicted_profile(), target_batch=2048).reasons
    assert any("64 is the largest predicted size that leaves the headroom" in r for r in reasons)
    assert any("75 % of the bytes that are live then are activations" in r for r in reasons)
    assert any("next larger size, 128, is predicted to run out of memory" in r for r in reasons)
    assert any("upper end was held against the limit" in r for r in reasons)


def test_alternatives_say_why_not():
    profile = predicted_profile((16, 32, 64, 120), failed=())
    answer = recommend_plan(profile, target_batch=1920)
    by_size = {a.plan.micro_batch_size: a for a in answer.alternatives}
    assert all(a.slower_by is None for a in answer.alternatives)
    assert "headroom leaves" in by_size[120].reason
    assert by_size[16].reason.startswith("Takes 120 micro-steps where")


def test_the_document_has_nulls_for_what_is_not_known():
    answer = recommend_plan(predicted_profile(), target_batch=100)
    document = json.loads(json.dumps(recommendation_document(answer), allow_nan=False))
    assert document["step_time_s"] is None
    assert document["samples_per_s"] is None
    assert document["device_used_bytes"]["high"] <= LIMIT
    assert {a["slower_by"] for a in document["alternatives"]} == {None}
    assert from_json(Recommendation, to_json(answer)) == answer


def test_ranks_share_the_target_and_are_told_what_is_left_out():
    profile = predicted_profile(facts=facts())
    answer = recommend_plan(profile, target_batch=2048, world_size=8)
    assert answer.plan.accumulation_steps == 4
    note = next(n for n in answer.notes if n.code == "synchronisation-not-measured")
    assert "predicted for one rank" in note.message
    assert "time" not in note.message
    assert "--world-size 8 --parallel ddp" in note.hint
    assert answer.plan.device_used_bytes.value == pytest.approx(
        GIB + 64 * 200 * MIB + 12_000_000, rel=1e-9
    )


def test_a_prediction_for_the_ranks_needs_no_addition():
    profile = predicted_profile(ranks=8, parallel="ddp", facts=facts())
    answer = recommend_plan(profile, target_batch=2048, world_size=8)
    assert answer.plan.device_used_bytes.value == GIB + 64 * 200 * MIB
    assert not any("rank" in n.message for n in answer.notes)


def test_inference_without_a_target_takes_the_largest_that_fits():
    workload = WorkloadSpec(model="gpt-tiny", mode=Mode.INFER)
    answer = recommend_plan(predicted_profile(workload=workload))
    assert answer.plan.micro_batch_size == 64
    assert answer.target.target_batch == 64
    assert "forward" in " ".join(answer.reasons)


def test_measured_points_without_times_are_still_no_evidence():
    point = predicted_point(8, GIB)
    with pytest.raises(MeasurementError, match="can be used"):
        recommend_plan(profile_of([point]), target_batch=64)


def test_with_times_everything_is_as_for_measured_profiles():
    points = [ok_point(b, 0.01 * b + 0.02, used_bytes=b * GIB, half_width=0.05) for b in (2, 4, 8)]
    profile = replace(predicted_profile(), points=tuple(points))
    answer = recommend_plan(profile, target_batch=64)
    assert answer.plan.step_time_s is not None
    assert "Of 3 predicted sizes that fit" in " ".join(answer.reasons)


CHECKPOINTING = Change(
    name="full activation checkpointing",
    options=("--activation-checkpointing", "full"),
    micro_batch_size=1,
    device_used_bytes=Quantity(value=20 * GIB, low=19 * GIB, high=21 * GIB),
    saved_bytes=Quantity.exact(10 * GIB),
    fits=True,
)
TOO_LITTLE = Change(
    name="an 8-bit optimizer",
    options=("--optimizer", "adamw8bit"),
    micro_batch_size=1,
    device_used_bytes=Quantity.exact(26 * GIB),
    saved_bytes=Quantity.exact(4 * GIB),
    fits=False,
)


@pytest.mark.parametrize("status", [PointStatus.OOM, PointStatus.OK])
def test_where_nothing_fits_the_predicted_changes_are_named(status):
    point = predicted_point(1, 30 * GIB, status=status, alloc_retries=0)
    rules = Prediction(device="rtx-4090", changes=(TOO_LITTLE, CHECKPOINTING))
    profile = replace(predicted_profile(), points=(point,), prediction=rules)
    with pytest.raises(NoFeasibleBatch) as found:
        recommend_plan(profile, target_batch=64)
    error = found.value
    assert "30.9 GiB" in error.found  # the upper end of what the smallest size needs
    assert ", 1," in error.found
    assert "--activation-checkpointing full" in error.next_step
    assert "20.0 GiB (19.0 GiB to 21.0 GiB), 10.0 GiB less" in error.next_step
    assert "8-bit" not in error.next_step


def test_a_change_that_leaves_no_headroom_is_no_help():
    point = predicted_point(1, 30 * GIB, status=PointStatus.OK)
    rules = Prediction(device="rtx-4090", changes=(TOO_LITTLE, CHECKPOINTING))
    profile = replace(predicted_profile(), points=(point,), prediction=rules)
    with pytest.raises(NoFeasibleBatch) as found:
        recommend_plan(profile, target_batch=64, headroom=0.2)
    step = found.value.next_step
    assert step.startswith("no predicted change is enough; the largest saving: full")


def test_smaller_sizes_are_predicted_before_anything_is_changed():
    point = predicted_point(8, 30 * GIB, status=PointStatus.OOM)
    profile = replace(predicted_profile(), points=(point,))
    with pytest.raises(NoFeasibleBatch) as found:
        recommend_plan(profile, target_batch=64)
    assert found.value.next_step.startswith("predict smaller sizes")
    assert "--device rtx-4090 --software torch=2.13,cudnn=9" in found.value.next_step


def test_a_refused_request_is_said_where_the_need_is_not_known():
    profile = predicted_profile((), failed=(1,))
    with pytest.raises(NoFeasibleBatch) as found:
        recommend_plan(profile, target_batch=64)
    assert "predicted to run out of memory at a request of 512 MiB" in found.value.found


@settings(deadline=None)
@given(
    data=st.data(),
    target=st.integers(1, 5000),
    ranks=st.sampled_from((1, 2, 8)),
    objective=st.sampled_from((Objective.TIME, Objective.MEMORY)),
)
def test_promises_for_any_prediction(data, target, ranks, objective):
    """Exact target, within the limit, never a refused size; more headroom, no larger size."""
    sizes = sorted(data.draw(st.sets(st.integers(1, 200), min_size=1, max_size=7)))
    points = []
    for size in sizes:
        kind = data.draw(st.sampled_from(("ok", "ok", "ok", "flush", "oom")))
        used = data.draw(st.integers(GIB // 2, 30 * GIB))
        if kind == "oom":
            points.append(failed_point(size))
        else:
            points.append(predicted_point(size, used, alloc_retries=int(kind == "flush")))
    profile = replace(predicted_profile(), points=tuple(points))
    if target < ranks:
        return
    chosen = []
    for headroom in (0.0, 0.05, 0.3):
        try:
            answer = recommend_plan(
                profile,
                target_batch=target,
                world_size=ranks,
                headroom=headroom,
                objective=objective,
            )
        except NoFeasibleBatch:
            chosen.append(0)
            continue
        plan = answer.plan
        assert sum(r.samples * r.ranks for r in plan.pieces) == target
        assert plan.device_used_bytes.high <= (1 - headroom) * profile.device.usable_bytes
        refused = {p.micro_batch_size for p in points if not p.is_ok}
        assert not refused & {size for rank in plan.pieces for size in rank.sizes}
        assert profile.origin is Origin.PREDICTED
        chosen.append(plan.micro_batch_size)
    assert chosen == sorted(chosen, reverse=True)
