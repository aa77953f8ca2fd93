"""The plan for a target: exact, within memory, only sizes that ran."""

import subprocess
import sys

import pytest
from recommend_profiles import (
    GIB,
    MIB,
    Mode,
    PointStatus,
    Quantity,
    affine,
    curve_profile,
    facts,
    failed_point,
    ok_point,
    profile_of,
)

from bsprof.errors import UsageError
from bsprof.recommend import recommend_plan
from bsprof.records import Note, Origin, Regime, WorkloadSpec

SIZES = [1, 2, 4, 8, 16, 32, 64]


def codes(notes):
    return {note.code for note in notes}


def test_the_fastest_update_wins():
    plan = recommend_plan(curve_profile(SIZES, affine(0.02, 0.005)), target_batch=2048).plan
    assert (plan.micro_batch_size, plan.accumulation_steps) == (64, 32)
    assert plan.pieces_by_rank == ((64,) * 32,)
    assert plan.step_time_s.value == pytest.approx(32 * (0.02 + 64 * 0.005) + 0.010)
    assert plan.samples_per_s.value == pytest.approx(2048 / plan.step_time_s.value)
    assert plan.headroom_bytes == 3 * GIB - (200 + 64 * 30) * MIB
    assert not plan.interpolated


def test_throughput_that_collapses_before_memory_ends():
    def seconds(size):
        return (0.02 + 0.005 * size) * (1 if size <= 16 else 3)

    answer = recommend_plan(curve_profile(SIZES, seconds), target_batch=2048)
    assert answer.plan.micro_batch_size == 16


@pytest.mark.parametrize(("target", "world_size"), [(1009, 8), (1009, 1), (127, 2), (13, 13)])
def test_prime_targets_are_met_exactly(target, world_size):
    answer = recommend_plan(
        curve_profile(SIZES, affine(0.02, 0.005)), target_batch=target, world_size=world_size
    )
    plan = answer.plan
    assert sum(map(sum, plan.pieces_by_rank)) == plan.effective_batch_size == target
    assert len(plan.pieces_by_rank) == world_size
    assert len({len(rank) for rank in plan.pieces_by_rank}) == 1
    assert max(map(max, plan.pieces_by_rank)) == plan.micro_batch_size
    if len({piece for rank in plan.pieces_by_rank for piece in rank}) > 1:
        (note,) = [n for n in answer.advice if n.code == "piece-weights"]
        assert f"n / {target}" in note.message


def test_the_slowest_rank_sets_the_time():
    plan = recommend_plan(
        curve_profile([1, 2, 4], affine(0.02, 0.005)), target_batch=9, world_size=2
    ).plan
    assert plan.pieces_by_rank == ((4, 1), (3, 1))
    assert plan.step_time_s.value == pytest.approx(0.04 + 0.025 + 0.010)


def test_a_micro_batch_is_never_above_the_share_of_a_rank():
    profile = curve_profile(SIZES, affine(0.02, 0.005))
    plan = recommend_plan(profile, target_batch=32, world_size=4).plan
    assert (plan.micro_batch_size, plan.accumulation_steps) == (8, 1)


def test_a_size_between_two_measured_ones_is_marked():
    answer = recommend_plan(curve_profile(SIZES, affine(0.05, 0.005)), target_batch=48)
    assert answer.plan.pieces_by_rank == ((48,),)
    assert answer.plan.interpolated
    assert not answer.plan.confirmed
    assert "interpolated-size" in codes(answer.notes)


def test_a_measured_size_wins_unless_it_is_clearly_slower():
    # Without a fixed cost per micro-step one piece of 48 gains nothing over 32 and 16.
    answer = recommend_plan(curve_profile(SIZES, affine(0.001, 0.005)), target_batch=48)
    assert not answer.plan.interpolated
    reasons = {a.plan.micro_batch_size: a.reason for a in answer.alternatives}
    assert reasons[48] == "Not measured itself, and not clearly faster than a size that was."


def test_nothing_is_interpolated_across_a_failure():
    profile = curve_profile([1, 16, 64], affine(0.05, 0.005), failed=[40])
    answer = recommend_plan(profile, target_batch=48)
    assert answer.plan.pieces_by_rank == ((16, 16, 16),)
    assert all(a.plan.micro_batch_size < 17 for a in answer.alternatives)


def test_a_failed_size_is_not_a_last_piece_either():
    profile = curve_profile([1, 2, 4, 16, 32], affine(0.05, 0.005), failed=[8])
    answer = recommend_plan(profile, target_batch=40)
    assert answer.plan.pieces_by_rank == ((20, 20),) or 8 not in answer.plan.pieces_by_rank[0]
    assert answer.plan.micro_batch_size >= 16


def test_a_size_that_fits_only_after_a_cache_flush_is_not_used():
    points = [ok_point(b, 0.02 + 0.005 * b, alloc_retries=int(b == 64)) for b in SIZES]
    answer = recommend_plan(profile_of(points), target_batch=2048)
    assert answer.plan.micro_batch_size == 32
    assert any("flushed its cache" in reason for reason in answer.reasons)


def test_batch_norm_never_sees_a_last_piece_of_one():
    for target in range(4, 70):
        profile = curve_profile(
            [2, 4, 8, 16], affine(0.05, 0.005), facts=facts(batch_norm_modules=3)
        )
        plan = recommend_plan(profile, target_batch=target).plan
        assert min(plan.pieces_by_rank[0]) >= 2
        assert sum(plan.pieces_by_rank[0]) == target


def test_batch_norm_matters_in_training_only():
    known = {"facts": facts(batch_norm_modules=3), "mode": Mode.INFER}
    profile = curve_profile([2, 4, 8, 16], affine(0.0, 0.005), **known)
    assert 1 in recommend_plan(profile, target_batch=17).plan.pieces_by_rank[0]


def test_memory_is_held_against_the_upper_end():
    points = [
        ok_point(b, 0.02 + 0.005 * b, device_used_bytes=Quantity(value=v, low=v, high=h))
        for b, v, h in [(1, GIB, GIB), (2, 2 * GIB, 2.9 * GIB)]
    ]
    profile = profile_of(points)
    assert recommend_plan(profile, target_batch=8).plan.micro_batch_size == 1
    assert recommend_plan(profile, target_batch=8, headroom=0.0).plan.micro_batch_size == 2
    answer = recommend_plan(profile, target_batch=8)
    assert answer.alternatives[0].reason == (
        "Needs up to 2.90 GiB, and the headroom leaves 2.85 GiB."
    )


def test_ranks_add_buffers_and_say_that_synchronising_was_not_measured():
    profile = curve_profile(SIZES, affine(0.02, 0.005), facts=facts())
    alone = recommend_plan(profile, target_batch=2048)
    ranks = recommend_plan(profile, target_batch=2048, world_size=8)
    assert "synchronisation-not-measured" not in codes(alone.notes)
    (note,) = [n for n in ranks.notes if n.code == "synchronisation-not-measured"]
    assert "time to synchronise gradients between 8 ranks is left out" in note.message
    assert "11.4 MiB" in note.message
    assert ranks.plan.device_used_bytes.high - alone.plan.device_used_bytes.high == 12_000_000


def test_measured_synchronisation_is_part_of_the_update():
    points = [
        ok_point(
            b,
            0.02 + 0.005 * b,
            micro_step_sync_s=Quantity.exact(0.05 + 0.005 * b),
            used_bytes=GIB,
        )
        for b in SIZES
    ]
    profile = profile_of(points, ranks=2, parallel="ddp", facts=facts())
    answer = recommend_plan(profile, target_batch=256, world_size=2)
    assert answer.plan.accumulation_steps == 2
    assert answer.plan.step_time_s.value == pytest.approx(0.34 + 0.37 + 0.010)
    assert codes(answer.notes) == set()
    other = recommend_plan(profile, target_batch=256, world_size=4)
    assert codes(other.notes) == {"other-world-size"}


def test_sharded_memory_does_not_answer_for_fewer_ranks():
    points = [ok_point(b, 0.02 + 0.005 * b, used_bytes=GIB) for b in SIZES]
    profile = profile_of(points, ranks=8, parallel="fsdp", facts=facts())
    with pytest.raises(UsageError, match="fsdp over 8 ranks does not answer for 2") as caught:
        recommend_plan(profile, target_batch=256, world_size=2)
    assert "--world-size 8" in caught.value.next_step
    assert recommend_plan(profile, target_batch=256, world_size=16).plan.micro_batch_size <= 16


def test_inference_has_no_optimizer_step_and_accumulates_nothing():
    points = [ok_point(b, 0.02 + 0.005 * b, optimizer_s=None, used_bytes=GIB) for b in SIZES]
    answer = recommend_plan(profile_of(points, mode=Mode.INFER), target_batch=128, world_size=2)
    assert answer.plan.pieces_by_rank == ((64,), (64,))
    assert answer.plan.step_time_s.value == pytest.approx(0.34)
    assert codes(answer.notes) == set()
    more = recommend_plan(profile_of(points, mode=Mode.INFER), target_batch=256)
    assert codes(more.notes) == {"inference-no-accumulation"}
    assert more.advice == ()


def test_near_misses_only_where_allowed_and_faster():
    # A last piece of 2 costs nearly as much as one of 48.
    profile = curve_profile([1, 2, 48], affine(0.2, 0.002))
    exact = recommend_plan(profile, target_batch=98)
    assert exact.plan.effective_batch_size == 98
    near = recommend_plan(profile, target_batch=98, tolerance=0.03)
    assert near.plan.pieces_by_rank == ((48, 48),)
    assert near.plan.effective_batch_size == 96
    assert "96 samples per update, 2 (2.0 %) fewer than asked" in near.reasons[0]
    strict = recommend_plan(profile, target_batch=98, tolerance=0.01)
    assert strict.plan.effective_batch_size == 98


def test_a_near_miss_that_gains_nothing_is_not_taken():
    profile = curve_profile([1, 2, 48], affine(0.0001, 0.01))
    answer = recommend_plan(profile, target_batch=100, tolerance=0.05)
    assert answer.plan.effective_batch_size == 100


def test_equal_pieces_where_a_second_shape_costs():
    spec = WorkloadSpec(model="gpt-tiny", compile=True)
    # 40 and 64 are equally fast, and 128 is 64 twice; the last piece of 8 costs 0.3 %.

    def seconds(size):
        return 0.01 * size * (1.05 if size == 8 else 1.0)

    plain = curve_profile([8, 40, 64], seconds)
    compiled = curve_profile([8, 40, 64], seconds, workload=spec)
    assert recommend_plan(plain, target_batch=128).plan.pieces_by_rank == ((40, 40, 40, 8),)
    answer = recommend_plan(compiled, target_batch=128)
    assert answer.plan.pieces_by_rank == ((64, 64),)
    assert "second-shape" not in codes(answer.notes)
    assert "second-shape" in codes(recommend_plan(compiled, target_batch=129).notes)


def test_cost_is_time_on_one_device_and_says_so():
    profile = curve_profile(SIZES, affine(0.02, 0.005))
    cost = recommend_plan(profile, target_batch=2048, objective="cost")
    assert cost.plan == recommend_plan(profile, target_batch=2048).plan
    assert codes(cost.notes) == {"cost-equals-time"}


def test_memory_takes_the_smallest_within_five_percent():
    profile = curve_profile(SIZES, affine(0.01, 0.005))
    assert recommend_plan(profile, target_batch=2048).plan.micro_batch_size == 64
    answer = recommend_plan(profile, target_batch=2048, objective="memory")
    assert answer.plan.micro_batch_size == 32  # 3 % slower; 16 is 9 % slower
    assert answer.reasons[1].startswith("32 needs the least memory")


def test_without_memory_peaks_the_answer_says_so():
    profile = profile_of([ok_point(b, 0.02 + 0.005 * b) for b in SIZES])
    answer = recommend_plan(profile, target_batch=2048)
    assert answer.plan.device_used_bytes is None
    assert answer.plan.headroom_bytes is None
    assert codes(answer.notes) == {"memory-unknown"}
    reserved = profile_of(
        [ok_point(b, 0.02 + 0.005 * b, peak_reserved_bytes=Quantity.exact(b * GIB)) for b in SIZES]
    )
    answer = recommend_plan(reserved, target_batch=2048)
    assert answer.plan.micro_batch_size == 2
    assert "reserved" in answer.notes[0].message


def test_notes_of_the_chosen_size_travel_along():
    notes = tuple(
        Note(code="unstable-timing", message="for the test", micro_batch_size=b) for b in (32, 64)
    )
    profile = curve_profile(SIZES, affine(0.02, 0.005), notes=notes, complete=False)
    answer = recommend_plan(profile, target_batch=2048)
    assert [n.micro_batch_size for n in answer.notes if n.code == "unstable-timing"] == [64]
    assert "incomplete-profile" in codes(answer.notes)


def test_predicted_numbers_are_called_so():
    profile = curve_profile(SIZES, affine(0.02, 0.005), origin=Origin.PREDICTED)
    answer = recommend_plan(profile, target_batch=2048)
    assert "not-measured" in codes(answer.notes)
    assert "these times are predicted" in answer.reasons[-1]


def test_regime_and_confirmation_are_those_of_the_size():
    points = [
        ok_point(b, 0.02 + 0.005 * b, regime=Regime.COMPUTE, confirmed=b == 64) for b in SIZES
    ]
    answer = recommend_plan(profile_of(points), target_batch=2048, profile_name="cpu/gpt-tiny/x")
    assert answer.plan.regime is Regime.COMPUTE
    assert answer.plan.confirmed
    assert answer.profile == "cpu/gpt-tiny/x"


@pytest.mark.parametrize("status", [s for s in PointStatus if s is not PointStatus.OK])
def test_no_other_outcome_is_ever_used(status):
    points = [ok_point(8, 0.1), failed_point(16, status), ok_point(32, 0.2)]
    answer = recommend_plan(profile_of(points), target_batch=160)
    assert answer.plan.micro_batch_size == 32
    smaller = recommend_plan(profile_of(points[:2]), target_batch=160)
    assert smaller.plan.micro_batch_size == 8


def test_epochs_that_leave_a_partial_update():
    profile = curve_profile(SIZES, affine(0.02, 0.005), facts=facts(dataset_size=5000))
    answer = recommend_plan(profile, target_batch=2048)
    (note,) = [n for n in answer.advice if n.code == "partial-window"]
    assert "2 whole updates and 904 samples over" in note.message
    assert "partial-window" not in codes(recommend_plan(profile, target_batch=1000).advice)
    above = codes(recommend_plan(profile, target_batch=8192).advice)
    assert "target-above-dataset" in above
    assert "partial-window" not in above


def test_recommending_imports_nothing_heavy():
    program = """
import sys
from bsprof.recommend import recommend_plan, recommendation_document
heavy = {"torch", "numpy", "pandas", "scipy", "matplotlib", "rich", "typer"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_target_of_a_trillion_samples_is_no_more_work():
    profile = curve_profile(SIZES, affine(0.02, 0.005))
    target = 10**12 + 3
    answer = recommend_plan(profile, target_batch=target, world_size=2)
    assert sum(kind.ranks * kind.samples for kind in answer.plan.pieces) == target
    assert answer.plan.accumulation_steps == -(-(target // 2 + 1) // 64)
    assert "exactly 1,000,000,000,003 samples per update" in answer.reasons[0]
