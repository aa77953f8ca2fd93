"""Flags and configuration: of options that exclude each other the flag wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsprof.records import Mode

NAME = "cpu-test-3000/gpt-tiny/20260114T090000Z"


def config(folder: Path, text: str, name: str = "bsprof.toml") -> None:
    (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('model = "mlp"\n', ["recommend", "--profile", NAME, "--target-batch", "8"]),
        ('device = "cuda"\n', ["recommend", "--profile", NAME, "--target-batch", "8"]),
        (
            f'[recommend]\nprofile = "{NAME}"\n',
            ["recommend", "--model", "gpt-tiny", "--target-batch", "8"],
        ),
        ("[recommend]\ntarget-batch = 2048\n", ["recommend", "--target-tokens", "1024"]),
        ("[recommend]\ntarget-tokens = 1024\n", ["recommend", "--target-batch", "8"]),
        ("[report]\ntarget-batch = 2048\n", ["report", "-o", "r.csv", "--target-tokens", "1024"]),
        ("[report]\ntarget-batch = 2048\n", ["report", NAME, NAME, "-o", "r.csv"]),
        ('headroom = "10%"\nworld-size = 2\n', ["report", "-o", "r.csv"]),
        ("json = true\n", ["report", "-o", "-", "--format", "csv"]),
    ],
)
def test_a_flag_beats_a_configured_option_that_it_excludes(run, stored, folder, text, words):  # noqa: ARG001
    config(folder, text)
    outcome = run(*words)
    assert outcome.status == 0, outcome.err


def test_the_flag_is_the_one_that_counts(run, stored, folder):  # noqa: ARG001
    config(folder, "[recommend]\ntarget-batch = 2048\n")
    document = run("recommend", "--target-tokens", "1024", "--json").json
    assert (document["target_tokens"], document["target_batch"]) == (1024, 8)
    assert run("recommend", "--json").json["target_batch"] == 2048


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("target-batch = 8\ntarget-tokens = 8\n", ["recommend"]),
        ("target-batch = 8\n", ["recommend", "--target-batch", "8", "--target-tokens", "8"]),
        ("", ["report", "-o", "r.csv", "--tolerance", "1%"]),
        ("", ["report", "-o", "r.csv", "--objective", "time", "--world-size", "2"]),
    ],
)
def test_on_one_level_options_still_exclude_each_other(run, stored, folder, text, words):  # noqa: ARG001
    config(folder, text)
    assert run(*words).status == 2


@pytest.mark.parametrize(
    "text",
    [
        'optimizer = "sgd"\nclip-norm = 1.0\n',
        'optimizer-option = ["lr=0.1"]\nactivation-checkpointing = "full"\n',
    ],
)
def test_configured_training_options_give_way_to_inference(run, sweep, folder, text):
    config(folder, f"[sweep]\n{text}")
    assert run("sweep", "--model", "mlp", "--mode", "infer").status == 0
    spec = sweep.calls[0]["spec"]
    assert spec.mode is Mode.INFER
    assert (spec.optimizer, spec.clip_norm) == ("adamw", None)
    assert (spec.optimizer_options, spec.activation_checkpointing) == ({}, "none")
    outcome = run("sweep", "--model", "mlp", "--mode", "infer", "--clip-norm", "1")
    assert outcome.status == 2
    assert "--clip-norm has no effect" in outcome.err


def test_configured_inference_gives_way_to_a_training_flag(run, sweep, folder):
    config(folder, '[sweep]\nmode = "infer"\n')
    run("sweep", "--model", "mlp", "--optimizer", "sgd")
    run("sweep", "--model", "mlp")
    assert [call["spec"].mode for call in sweep.calls] == [Mode.TRAIN, Mode.INFER]


def test_sizes_and_the_adaptive_schedule(run, sweep, folder):
    config(folder, "[sweep]\nmicro-batch-sizes = [1, 2, 4]\n")
    run("sweep", "--model", "mlp", "--max-micro-batch-size", "8")
    run("sweep", "--model", "mlp", "--find-max")
    config(folder, "[sweep]\nmax-micro-batch-size = 8\nfind-max = true\n")
    run("sweep", "--model", "mlp", "--micro-batch-sizes", "3")
    plans = [call["plan"] for call in sweep.calls]
    assert [plan.micro_batch_sizes for plan in plans] == [(), (), (3,)]
    assert [plan.max_micro_batch_size for plan in plans] == [8, None, None]
    assert [plan.find_max for plan in plans] == [False, True, False]


def test_resume_beats_a_configured_force(run, sweep, folder):
    config(folder, "[sweep]\nforce = true\n")
    outcome = run("sweep", "--model", "mlp", "--resume", "-o", "none.json")
    assert "cannot load profile none.json" in outcome.err
    assert sweep.calls == []


def test_lists_of_a_text_option_are_joined_and_one_text_is_a_list_where_it_repeats(
    run, sweep, folder
):
    config(folder, '[sweep]\nmicro-batch-sizes = [1, 2, 4]\noptimizer-option = "lr=0.1"\n')
    assert run("sweep", "--model", "mlp").status == 0
    assert sweep.calls[0]["plan"].micro_batch_sizes == (1, 2, 4)
    assert sweep.calls[0]["spec"].optimizer_options == {"lr": 0.1}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tool = 1  # tool.bsprof\n", "tool is 1, not a table"),
        ("tool.bsprof = 3\n", "bsprof is 3, not a table"),
    ],
)
def test_a_configuration_that_is_no_table(run, folder, text, found):
    config(folder, text, "pyproject.toml")
    outcome = run("models")
    assert outcome.status == 2
    assert found in outcome.err
