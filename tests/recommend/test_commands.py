"""The command lines that answers advise are whole: they give the same workload and device."""

import shlex

from recommend_profiles import (
    GIB,
    affine,
    curve_profile,
    device,
    failed_point,
    ok_point,
    profile_of,
)

from bsprof.recommend import recommend_plan
from bsprof.recommend.commands import sweep_command
from bsprof.records import Mode, Precision, SweepPlan, WorkloadSpec


def test_the_defaults_are_left_out():
    profile = curve_profile([1, 2], affine(0, 1))
    assert sweep_command(profile, "--resume") == (
        "bsprof sweep --model gpt-tiny --device cpu --resume"
    )


def test_everything_else_is_named():
    spec = WorkloadSpec(
        model="my job.py:make",
        seq_len=64,
        image_size=32,
        precision=Precision.AMP_BF16,
        optimizer="sgd",
        optimizer_options={"lr": 0.1, "nesterov": True, "note": "1"},
        clip_norm=1.5,
        activation_checkpointing="full",
        attention="eager",
        compile=True,
        channels_last=True,
        cudnn_benchmark=True,
        seed=7,
    )
    plan = SweepPlan(memory_limit_bytes=20 * GIB)
    gpu = device(kind="cuda", index=1)
    text = sweep_command(profile_of([ok_point(1, 1)], workload=spec, plan=plan, device=gpu))
    assert shlex.split(text) == [
        *("bsprof", "sweep", "--model", "my job.py:make", "--seq-len", "64"),
        *("--image-size", "32", "--precision", "amp-bf16", "--optimizer", "sgd"),
        *("--optimizer-option", "lr=0.1", "--optimizer-option", "nesterov=true"),
        *("--optimizer-option", 'note="1"', "--clip-norm", "1.5"),
        *("--activation-checkpointing", "full", "--attention", "eager", "--compile"),
        *("--channels-last", "--cudnn-benchmark", "--seed", "7"),
        *("--device", "cuda:1", "--memory-limit", "20GiB"),
    ]


def test_what_is_trained_is_named():
    spec = WorkloadSpec(
        model="llama-3.2-1b",
        model_options={"layers": 2, "activation": "silu"},
        lora_rank=16,
        lora_targets=("query", "value"),
        freeze=("tokens.*", "blocks.0.*"),
        ema=True,
        trust_remote_code=True,
    )
    text = sweep_command(profile_of([ok_point(1, 1)], workload=spec))
    assert shlex.split(text) == [
        *("bsprof", "sweep", "--model", "llama-3.2-1b"),
        *("--model-option", "layers=2", "--model-option", 'activation="silu"'),
        *("--lora", "r=16,targets=query+value", "--freeze", "tokens.*", "--freeze", "blocks.0.*"),
        *("--ema", "--trust-remote-code", "--device", "cpu"),
    ]


def test_inference_and_a_crooked_limit():
    spec = WorkloadSpec(model="mlp", mode=Mode.INFER)
    plan = SweepPlan(memory_limit_bytes=1001)
    assert sweep_command(profile_of([ok_point(1, 1)], workload=spec, plan=plan)) == (
        "bsprof sweep --model mlp --mode infer --device cpu --memory-limit 1001"
    )


def test_hints_are_whole_commands():
    profile = curve_profile([1, 2, 4, 32, 64], affine(0.05, 0.005), complete=False)
    notes = {note.code: note.hint for note in recommend_plan(profile, target_batch=48).notes}
    start = "bsprof sweep --model gpt-tiny --device cpu"
    assert notes["interpolated-size"] == f"{start} --micro-batch-sizes 48 measures it"
    assert notes["incomplete-profile"] == f"{start} --resume goes on where it stopped"
    tied = curve_profile(
        [8, 16, 32, 64],
        lambda b: 0.01 * b * (1.004 if b == 16 else 1.2 if b < 16 else 1.0),
        half_width=0.02,
    )
    (hint,) = [
        n.hint for n in recommend_plan(tied, target_batch=1024).notes if n.code == "tie-undecided"
    ]
    assert hint == f"{start} --micro-batch-sizes 16,32 measures both again"
    assert failed_point(1).failure is not None
