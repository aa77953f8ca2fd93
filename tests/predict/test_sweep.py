"""Predicted sweeps for real: a worker traces, replays answer, profiles are kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import bsprof
from bsprof.errors import UsageError, WorkloadError
from bsprof.hardware.catalogue import find_device
from bsprof.predict.scenarios import WORLDS
from bsprof.predict.sweep import predict_sweep, predict_sweeps
from bsprof.predict.target import Software
from bsprof.records import (
    Category,
    Mode,
    Origin,
    Phase,
    PointStatus,
    Precision,
    Regime,
    SweepPlan,
    WorkloadSpec,
)
from bsprof.store import load, loads, profile_path

GIB = 2**30
TWO = ("rtx-4090", "a100-40gb-pcie")


@pytest.fixture(scope="module")
def predicted(tmp_path_factory):
    """Profiles of gpt-tiny on two devices, with what was told meanwhile."""
    store = tmp_path_factory.mktemp("store")
    told = []
    profiles = predict_sweeps(
        WorkloadSpec(model="gpt-tiny", seq_len=64, precision=Precision.AMP_BF16),
        [find_device(name) for name in TWO],
        store=store,
        on_event=told.append,
    )
    return store, profiles, told


def test_one_trace_serves_devices_that_agree(predicted):
    _, profiles, told = predicted
    assert [p.prediction.device for p in profiles] == list(TWO)
    traced = [event.text for event in told if event.text.startswith("tracing")]
    assert len(traced) == len(set(traced)) <= 3
    assert [event.kind for event in told].count("start") == 2
    assert told[-1].kind == "end"


def test_profiles_are_complete_and_read_back(predicted):
    store, profiles, _ = predicted
    for profile in profiles:
        path = profile_path(profile, store)
        assert path.parent.parent.name.endswith("-predicted")
        assert load(path) == profile
        assert loads(path.read_text(), str(path)) == profile
        assert profile.origin is Origin.PREDICTED
        assert profile.complete
        assert profile.key is not None
        assert profile.facts.optimizer == "AdamW"
        assert profile.device.kind == "cuda"
        assert profile.device.details["catalogue"] == profile.prediction.device
        assert profile.peaks.flops_per_s["bf16"] > profile.peaks.flops_per_s["fp32"]
        assert not profile.peaks.are_measured
        assert profile.prediction.timing


def test_points_that_fit_have_times_and_what_they_are_made_of(predicted):
    _, profiles, _ = predicted
    for profile in profiles:
        steps = [p.micro_step_s.value for p in profile.ok_points()]
        assert steps == sorted(steps)
        for point in profile.ok_points():
            assert point.micro_step_s.low > 0
            assert point.optimizer_step_s.value > 0
            update_s = point.micro_step_s.value + point.optimizer_step_s.value
            assert point.samples_per_s.value == pytest.approx(point.micro_batch_size / update_s)
            assert 0 < point.mfu.value < 1
            assert point.regime is not Regime.UNKNOWN
            assert point.flops.value > 0
            known = point.prediction
            assert len(known.worlds.micro_step_s) == WORLDS
            device_s = sum(known.seconds_by_class.values())
            assert point.micro_step_s.value == pytest.approx(max(device_s, known.host_s))
            heaviest = [operator.seconds for operator in known.heaviest]
            assert heaviest == sorted(heaviest, reverse=True)
            assert 0 < sum(heaviest) <= device_s * 1.0001
    first = [profile.points[0] for profile in profiles]
    assert {p.regime for p in first} == {Regime.LAUNCH}
    assert all(p.prediction.host_s >= p.micro_step_s.value for p in first)
    for point in profiles[0].points:
        if point.status is not PointStatus.OK:
            assert point.micro_step_s is point.samples_per_s is None


def test_points_say_what_owns_the_memory(predicted):
    _, profiles, _ = predicted
    for profile in profiles:
        assert len(profile.ok_points()) >= 8
        assert profile.points[-1].status is PointStatus.OOM or profile.points[-1].alloc_retries
        for point in profile.ok_points():
            assert sum(point.peak_by_category_bytes.values()) == pytest.approx(
                point.peak_allocated_bytes.value
            )
            assert point.device_used_bytes.high <= 1.1 * profile.device.usable_bytes
            assert set(point.memory.allocated_by_phase_bytes) == {
                Phase.FORWARD_BACKWARD,
                Phase.ACCUMULATION,
                Phase.OPTIMIZER_STEP,
            }
        largest = profile.max_micro_batch_size
        assert profile.point(int(largest.value)).is_ok
        assert profile.point(int(largest.value)).prediction.timeline is not None
    assert profiles[0].max_micro_batch_size.value < profiles[1].max_micro_batch_size.value


def test_live_bytes_grow_evenly_with_the_size(predicted):
    _, profiles, _ = predicted
    for profile in profiles:
        held = {
            p.micro_batch_size: p.peak_by_category_bytes.get(Category.ACTIVATIONS, 0)
            for p in profile.ok_points()
            if p.micro_batch_size >= 64  # below, rounding to blocks shows
        }
        sizes = sorted(held)
        slopes = [(held[b] - held[sizes[0]]) / (b - sizes[0]) for b in sizes[1:]]
        assert max(slopes) == pytest.approx(min(slopes), rel=0.02)


@pytest.mark.slow
def test_a_trace_of_its_own_agrees_with_what_follows_from_two(predicted, tmp_path):
    _, profiles, _ = predicted
    size = 64
    alone = predict_sweep(
        profiles[0].workload,
        find_device(TWO[0]),
        plan=SweepPlan(micro_batch_sizes=(size,)),
        store=tmp_path,
    )
    [point] = alone.points
    assert alone.max_micro_batch_size is None
    followed = profiles[0].point(size)
    assert point.peak_allocated_bytes == followed.peak_allocated_bytes
    assert point.device_used_bytes == followed.device_used_bytes
    assert point.peak_by_category_bytes == followed.peak_by_category_bytes


def test_the_parent_loads_no_torch(tmp_path):
    script = (
        "import bsprof, sys\n"
        "if __name__ == '__main__':\n"
        "    device = bsprof.find_device('l4')\n"
        "    plan = bsprof.SweepPlan(micro_batch_sizes=(4,))\n"
        "    bsprof.predict_sweep('mlp', device, plan=plan)\n"
        "    print([n for n in ('torch', 'numpy', 'pandas') if n in sys.modules])\n"
    )
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(Path(bsprof.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"parallel": "ddp"}, "has no effect with one rank"),
        ({"parallel": "none", "world_size": 2}, "share nothing"),
        ({"parallel": "tensor", "world_size": 2}, "unknown way to share"),
        ({"allocator_conf": "backend:cudaMallocAsync"}, "allocator"),
        ({"allocator_conf": "expandable_segments:True", "software": Software(torch=(2, 0))}, "2.1"),
    ],
)
def test_what_cannot_be_is_refused_before_tracing(tmp_path, options, said):
    with pytest.raises(UsageError, match=said):
        predict_sweep("mlp", find_device("rtx-4090"), store=tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_errors_of_the_users_code_are_told_with_their_place(tmp_path):
    (tmp_path / "broken.py").write_text(
        "import torch\n"
        "from bsprof import Workload\n"
        "def make():\n"
        "    def loss(model, batch):\n"
        "        return model(batch).missing()\n"
        "    return Workload(\n"
        "        model=lambda: torch.nn.Linear(8, 8),\n"
        "        batch=lambda b, device: torch.randn(b, 8, device=device),\n"
        "        loss=loss,\n"
        "        optimizer=lambda p: torch.optim.SGD(p, lr=0.1),\n"
        "    )\n"
    )
    with pytest.raises(WorkloadError) as caught:
        predict_sweep(f"{tmp_path}/broken.py:make", find_device("rtx-4090"), store=tmp_path)
    assert "broken.py:5" in str(caught.value)
    assert "missing" in str(caught.value)
    with pytest.raises(WorkloadError, match="no file"):
        predict_sweep(f"{tmp_path}/none.py:make", find_device("rtx-4090"), store=tmp_path)


@pytest.mark.slow
def test_a_memory_limit_and_explicit_sizes(tmp_path):
    profile = predict_sweep(
        WorkloadSpec(model="convnet", image_size=64),
        find_device("rtx-4090"),
        plan=SweepPlan(micro_batch_sizes=(8, 2, 4, 4096), memory_limit_bytes=2 * GIB),
        store=tmp_path,
    )
    assert profile.device.usable_bytes == 2 * GIB
    assert profile.device.limit_source == "option"
    assert [p.micro_batch_size for p in profile.points] == [2, 4, 8, 4096]
    assert [p.is_ok for p in profile.points] == [True, True, True, False]
    assert 8 < profile.max_micro_batch_size.value < 4096


@pytest.mark.slow
def test_inference_keeps_no_gradients(tmp_path):
    profile = predict_sweep(
        WorkloadSpec(model="convnet", image_size=64, mode=Mode.INFER),
        find_device("rtx-4090"),
        plan=SweepPlan(micro_batch_sizes=(4, 8)),
        store=tmp_path,
    )
    for point in profile.points:
        assert point.peak_phase is Phase.FORWARD
        assert not point.peak_by_category_bytes.get(Category.GRADIENTS)
        assert not point.peak_by_category_bytes.get(Category.OPTIMIZER_STATE)


@pytest.mark.slow
def test_where_nothing_fits_changes_are_predicted(tmp_path):
    profile = predict_sweep(
        WorkloadSpec(model="gpt-tiny"),
        find_device("rtx-4090"),
        plan=SweepPlan(memory_limit_bytes=620 * 2**20, micro_batch_sizes=(16, 32)),
        store=tmp_path,
    )
    assert not profile.ok_points()
    by_name = {change.name: change for change in profile.prediction.changes}
    assert by_name["mixed precision"].saved_bytes.value > 0
    assert by_name["full activation checkpointing"].saved_bytes.value > 0
    assert json.dumps(by_name["full activation checkpointing"].options)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp", "zero1", "zero2", "zero3"])
def test_ranks(tmp_path, parallel):
    profile = predict_sweep(
        WorkloadSpec(model="gpt-tiny"),
        find_device("a100-80gb-sxm"),
        plan=SweepPlan(micro_batch_sizes=(4,)),
        world_size=4,
        parallel=parallel,
        store=tmp_path,
    )
    assert (profile.ranks, profile.parallel) == (4, parallel)
    assert "NCCL buffers" in {term.name for term in profile.prediction.terms}
