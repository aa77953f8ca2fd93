"""Whole sweeps of small workloads in real workers: what a profile must hold."""

import pytest

from bsprof.measure.sweep import run_sweep
from bsprof.records import Mode, Phase, PointStatus, Precision, Regime, SweepPlan, WorkloadSpec
from bsprof.records.codec import from_json, to_json
from bsprof.records.profile import Profile

QUICK = SweepPlan(micro_batch_sizes=(2, 8), memory_limit_bytes=2 * 2**30)


def test_a_point_is_whole_and_consistent(peaks_store):
    profile = run_sweep("convnet", device="cpu", plan=QUICK, store=peaks_store)
    assert from_json(Profile, to_json(profile)) == profile
    assert profile.facts.batch_norm_modules == 10
    assert profile.key.operators
    small, large = profile.points
    for point in (small, large):
        assert point.status is PointStatus.OK
        assert point.observed_micro_batch_size == point.micro_batch_size
        assert point.micro_steps_run >= 3
        assert point.regime is not Regime.UNKNOWN
        phases = point.memory.allocated_by_phase_bytes
        assert set(phases) == {Phase.FORWARD_BACKWARD, Phase.ACCUMULATION, Phase.OPTIMIZER_STEP}
        # A second micro-step holds the gradients of the first as well.
        gradients = 4 * profile.facts.trainable_parameter_count
        grown = phases[Phase.ACCUMULATION] - phases[Phase.FORWARD_BACKWARD]
        assert 0 < grown <= 1.1 * gradients
        assert sum(point.peak_by_category_bytes.values()) == phases[point.peak_phase]
        assert point.peak_allocated_bytes.value < point.device_used_bytes.value
    assert large.flops.value == 4 * small.flops.value
    assert (
        large.memory.allocated_by_phase_bytes[Phase.FORWARD_BACKWARD]
        > (small.memory.allocated_by_phase_bytes[Phase.FORWARD_BACKWARD])
    )
    assert any(point.confirmed for point in profile.points)


@pytest.mark.slow
def test_inference_has_one_phase_and_no_optimizer(peaks_store):
    spec = WorkloadSpec(model="mlp", mode=Mode.INFER)
    profile = run_sweep(spec, device="cpu", plan=QUICK, store=peaks_store)
    for point in profile.ok_points():
        assert set(point.memory.allocated_by_phase_bytes) == {Phase.FORWARD}
        assert point.optimizer_step_s is None
        assert point.samples_per_s.value == pytest.approx(
            point.micro_batch_size / point.micro_step_s.value
        )
    assert profile.facts.optimizer is None


@pytest.mark.slow
def test_a_scaler_that_skips_steps_does_not_hide_the_optimizer_state(peaks_store):
    spec = WorkloadSpec(model="mlp", precision=Precision.AMP_FP16)
    profile = run_sweep(spec, device="cpu", plan=QUICK, store=peaks_store)
    point = profile.point(2)
    state = point.peak_by_category_bytes["optimizer_state"]
    assert state >= 2 * 4 * profile.facts.trainable_parameter_count


@pytest.mark.slow
def test_a_compiled_size_says_what_compiling_took(peaks_store):
    spec = WorkloadSpec(model="mlp", compile=True)
    profile = run_sweep(spec, device="cpu", plan=QUICK, store=peaks_store)
    for point in profile.ok_points():
        assert point.compile_s.value > 5 * point.micro_step_s.value
    assert len(profile.ok_points()) == 2


@pytest.mark.slow
def test_a_budget_ends_the_sweep_with_a_note(peaks_store):
    plan = SweepPlan(time_budget_s=0.001, memory_limit_bytes=2 * 2**30)
    profile = run_sweep("gpt-tiny", device="cpu", plan=plan, store=peaks_store)
    assert len(profile.points) == 1
    assert "time-budget" in {note.code for note in profile.notes}
    assert not profile.complete
