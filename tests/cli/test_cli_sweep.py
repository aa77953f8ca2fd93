from __future__ import annotations

import json
from pathlib import Path

import pytest

from bsprof.errors import WorkloadError
from bsprof.records import Mode, Point, PointStatus, Precision, SweepPlan, WorkloadSpec
from bsprof.store import load, profile_path, save

IN_STORE = "profiles/cpu-test-3000/gpt-tiny/20260114T090000Z.json"


def test_a_sweep_fills_the_store_and_answers(run, sweep, folder):
    outcome = run("sweep", "--model", "gpt-tiny")
    assert outcome.status == 0
    assert load(folder / IN_STORE).complete
    assert outcome.err.splitlines() == [
        "measuring on a made device",
        *(f"size {b}: ok" for b in (1, 2, 4, 8, 16, 32, 64)),
        "size 128: oom",
        "note: the made device is fine",
        f"wrote {IN_STORE}",
    ]
    assert "gpt-tiny" in outcome.out.splitlines()[0]
    assert "\t64\t" in outcome.out.replace("\n", "\t")
    assert sweep.calls[0]["output"] is None
    assert sweep.calls[0]["spec"] == WorkloadSpec(model="gpt-tiny")
    assert sweep.calls[0]["plan"] == SweepPlan()


def test_every_option_arrives(run, sweep):
    outcome = run(
        *("sweep", "--model", "gpt-tiny", "--device", "cuda:1", "--max-micro-batch-size", "64"),
        *("--seq-len", "64", "--image-size", "32", "--precision", "amp-bf16"),
        *(
            "--optimizer",
            "sgd",
            "--optimizer-option",
            "lr=0.1",
            "--optimizer-option",
            "nesterov=true",
        ),
        *("--clip-norm", "1.5", "--activation-checkpointing", "2", "--attention", "eager"),
        *("--compile", "--channels-last", "--cudnn-benchmark", "--seed", "7", "--find-max"),
        *("--memory-limit", "2GiB", "--time-budget", "2m", "--dataset-size", "1000"),
        *("--relative-error", "5%", "--loader", "bsprof.data:make", "-o", "p.json", "-q"),
    )
    assert outcome.status == 0, outcome.err
    assert outcome.err == ""
    [call] = sweep.calls
    assert call["device"] == "cuda:1"
    assert call["output"] == Path("p.json")
    assert call["spec"] == WorkloadSpec(
        model="gpt-tiny",
        seq_len=64,
        image_size=32,
        precision=Precision.AMP_BF16,
        optimizer="sgd",
        optimizer_options={"lr": 0.1, "nesterov": True},
        clip_norm=1.5,
        activation_checkpointing="2",
        attention="eager",
        compile=True,
        channels_last=True,
        cudnn_benchmark=True,
        seed=7,
    )
    assert call["plan"] == SweepPlan(
        max_micro_batch_size=64,
        memory_limit_bytes=2 * 2**30,
        time_budget_s=120.0,
        dataset_size=1000,
        find_max=True,
        relative_error=0.05,
        loader="bsprof.data:make",
    )


def test_explicit_sizes_and_inference(run, sweep):
    run("sweep", "--model", "mlp", "--micro-batch-sizes", "8,1,4", "--mode", "infer")
    assert sweep.calls[0]["plan"].micro_batch_sizes == (8, 1, 4)
    assert sweep.calls[0]["spec"].mode is Mode.INFER


def test_json_is_the_profile_and_nothing_else(run, sweep, folder):  # noqa: ARG001
    outcome = run("sweep", "--model", "gpt-tiny", "--json")
    assert outcome.out == (folder / IN_STORE).read_text()
    assert list(outcome.json) == sorted(outcome.json)
    assert f"wrote {IN_STORE}" in outcome.err


def test_dash_prints_the_profile_once_and_the_store_keeps_it(run, sweep, folder):  # noqa: ARG001
    outcome = run("sweep", "--model", "gpt-tiny", "--json", "-o", "-")
    assert outcome.out == (folder / IN_STORE).read_text()


@pytest.mark.parametrize(
    ("words", "status", "first", "rest"),
    [
        (["--model", "gpt-tony"], 2, "unknown model 'gpt-tony'", "gpt-tiny"),
        (["--model", "none.py:make"], 3, "cannot load the model 'none.py:make'", "no file none.py"),
        (["--model", "mlp", "--loader", "none.py:make"], 3, "cannot load the loader", "no file"),
        (["--model", "mlp", "--loader", "mlp"], 2, "cannot read the loader 'mlp'", "data.py:"),
        (["--model", "mlp", "--device", "cud"], 3, "cannot find a device named 'cud'", "cuda"),
        (["--model", "mlp", "--precision", "fp31"], 2, "unknown precision 'fp31'", "fp32"),
        (["--model", "mlp", "--mode", "serve"], 2, "unknown mode 'serve'", "train, infer"),
        (["--model", "mlp", "--attention", "flash"], 2, "unknown attention 'flash'", "sdpa, eager"),
        (["--model", "mlp", "--memory-limit", "2Gi"], 2, "cannot read the amount", "unit 'gi'"),
        (["--model", "mlp", "--time-budget", "soon"], 2, "cannot read the duration", "90s"),
        (["--model", "mlp", "--micro-batch-sizes", "1,x"], 2, "cannot read the sizes", "1,2,4"),
        (["--model", "mlp", "--micro-batch-sizes", "0"], 2, "cannot read the sizes", "at least 1"),
        (["--model", "mlp", "--micro-batch-sizes", "2,2"], 2, "a size is given twice", "once"),
        (
            ["--model", "mlp", "--micro-batch-sizes", "1", "--max-micro-batch-size", "2"],
            2,
            "--micro-batch-sizes and --max-micro-batch-size exclude",
            "cap",
        ),
        (
            ["--model", "mlp", "--optimizer-option", "lr"],
            2,
            "cannot read --optimizer-option",
            "lr=0.001",
        ),
        (["--model", "mlp", "--optimizer-option", "betas=[1,2]"], 2, "cannot read", "a list"),
        (["--model", "mlp", "--optimizer-option", "lr=NaN"], 2, "cannot read", "not finite"),
        (
            ["--model", "mlp", "--optimizer-option", "lr=1", "--optimizer-option", "lr=2"],
            2,
            "--optimizer-option lr is given twice",
            "once",
        ),
        (
            ["--model", "mlp", "--activation-checkpointing", "half"],
            2,
            "cannot read the act",
            "full",
        ),
        (["--model", "mlp", "--activation-checkpointing", "0"], 2, "cannot read the act", "full"),
        (
            ["--model", "mlp", "--mode", "infer", "--clip-norm", "1"],
            2,
            "--clip-norm has no",
            "leave",
        ),
        (
            ["--model", "mlp", "--mode", "infer", "--optimizer", "sgd"],
            2,
            "--optimizer has no",
            "leave",
        ),
        (["--model", "mlp", "--relative-error", "0%"], 2, "--relative-error must", "2%"),
        (["--model", "mlp", "--clip-norm", "inf"], 2, "the gradient cannot be", "finite"),
        (["--model", "mlp", "--clip-norm", "1e400"], 2, "the gradient cannot be", "finite"),
        (["--model", "mlp", "--clip-norm", "nan"], 2, "", "next:"),
        (["--model", "mlp", "--time-budget", "1e400s"], 2, "cannot read the duration", "too large"),
        (["--model", "mlp", "--memory-limit", "1e400GiB"], 2, "cannot read the amount", "too"),
        (
            ["--model", "mlp", "--micro-batch-sizes", "1", "--find-max"],
            2,
            "--micro-batch-sizes and --find-max exclude",
            "adaptive",
        ),
        (["--model", "mlp", "--force"], 2, "--force has nothing to overwrite", "-o"),
        (
            ["--model", "mlp", "--resume", "--force", "-o", "x"],
            2,
            "--resume and --force",
            "overwrite",
        ),
        (["--model", "mlp", "--resume"], 3, "nothing to resume", "--resume"),
        (
            ["--model", "mlp", "--resume", "-o", "none.json"],
            3,
            "cannot load profile none.json",
            "no such",
        ),
        (
            ["--model", "mlp", "-o", "no/such/p.json"],
            3,
            "cannot write no/such/p.json",
            "mkdir -p no/such",
        ),
        (["--model", "mlp", "-o", "/proc/p.json"], 3, "cannot write /proc/p.json", "/proc:"),
        (["--model", "mlp", "-o", "."], 3, "cannot write .", "a folder of that name"),
        (["--model", "mlp", "--color", "pink"], 2, "unknown colour mode 'pink'", "auto"),
        (["--model", "mlp", "--seq-len", "0"], 2, "Invalid value for '--seq-len'", "--help"),
        ([], 2, "Missing option '--model'", "bsprof sweep --help"),
        (["--modl", "mlp"], 2, "No such option: --modl", "bsprof sweep --help"),
    ],
)
def test_what_cannot_be_is_refused_before_measuring(run, sweep, words, status, first, rest):
    outcome = run("sweep", *words)
    assert outcome.status == status, outcome.err
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert lines[0].startswith(f"error: {first}")
    assert rest in outcome.err
    assert all(line.startswith(("  found:  ", "  next:   ", " " * 10)) for line in lines[1:])
    assert "Traceback" not in outcome.err
    assert sweep.calls == []


def test_no_overwrite_without_force(run, sweep, folder):
    (folder / "p.json").write_text("precious")
    outcome = run("sweep", "--model", "mlp", "-o", "p.json")
    assert outcome.status == 3
    assert outcome.err.splitlines() == [
        "error: cannot write p.json",
        "  found:  the file exists",
        "  next:   add --force to overwrite it, or choose another name",
    ]
    assert sweep.calls == []
    assert (folder / "p.json").read_text() == "precious"
    assert run("sweep", "--model", "mlp", "-o", "p.json", "--force").status == 0
    assert load(folder / "p.json").workload.model == "mlp"


def test_a_store_that_cannot_be_written_is_told_before_measuring(run, sweep, monkeypatch):
    monkeypatch.setenv("BSPROF_STORE", "/proc/store")
    outcome = run("sweep", "--model", "mlp")
    assert outcome.status == 3
    assert outcome.err.startswith("error: cannot write to the store /proc/store")
    assert sweep.calls == []


def test_interruption_tells_what_is_kept_and_how_to_go_on(run, sweep, folder):
    sweep.failure = KeyboardInterrupt()
    outcome = run("sweep", "--model", "gpt-tiny", "--precision", "amp-bf16", "-q")
    assert outcome.status == 130
    assert outcome.err.splitlines() == [
        f"interrupted; finished points are kept in {IN_STORE}",
        "go on with: bsprof sweep --model gpt-tiny --precision amp-bf16 -q --resume",
    ]
    sweep.failure = None
    again = run("sweep", "--model", "gpt-tiny", "--precision", "amp-bf16", "--resume")
    assert again.status == 0
    assert sweep.calls[1]["resume"] == sweep.make_profile(
        workload=WorkloadSpec(model="gpt-tiny", precision=Precision.AMP_BF16), complete=False
    )
    assert sweep.calls[1]["output"] == Path(IN_STORE)
    assert load(folder / IN_STORE).complete


def test_interruption_of_a_named_file(run, sweep, folder):
    sweep.failure = KeyboardInterrupt()
    (folder / "p.json").write_text("old")
    outcome = run("sweep", "--model", "gpt-tiny", "-o", "p.json", "--force")
    assert "finished points are kept in p.json" in outcome.err
    assert "go on with: bsprof sweep --model gpt-tiny -o p.json --resume" in outcome.err
    sweep.failure = None
    assert run("sweep", "--model", "gpt-tiny", "-o", "p.json", "--resume").status == 0
    assert sweep.calls[1]["resume"] is not None


def test_interruption_before_anything_is_saved(run, sweep, stored):  # noqa: ARG001
    sweep.failure, sweep.saves = KeyboardInterrupt(), False
    outcome = run("sweep", "--model", "gpt-tiny")
    assert outcome.status == 130
    assert outcome.err.splitlines()[-1] == (
        "interrupted before the first point was finished; nothing to keep"
    )


def test_resume_prefers_the_same_options_over_the_newest(run, sweep, make_profile):
    store = Path("profiles")
    for day, precision in ((14, Precision.FP32), (15, Precision.TF32)):
        profile = make_profile(
            created_at=f"2026-01-{day}T09:00:00Z",
            workload=WorkloadSpec(model="gpt-tiny", precision=precision),
            complete=False,
        )
        save(profile, profile_path(profile, store))
    done = make_profile(created_at="2026-01-16T09:00:00Z")
    save(done, profile_path(done, store))
    run("sweep", "--model", "gpt-tiny", "--resume")
    assert sweep.calls[0]["resume"].created_at == "2026-01-14T09:00:00Z"
    run("sweep", "--model", "gpt-tiny", "--resume", "--precision", "bf16")
    assert sweep.calls[1]["resume"].created_at == "2026-01-15T09:00:00Z"
    assert run("sweep", "--model", "gpt-tiny", "--resume", "--device", "cuda").status == 3


def test_not_one_usable_point_is_status_4_and_the_profile_is_kept(run, sweep, folder):
    sweep.changes = {"points": (Point(micro_batch_size=1, status=PointStatus.OOM),)}
    outcome = run("sweep", "--model", "gpt-tiny")
    assert outcome.status == 4
    assert "no micro-batch size of gpt-tiny gave a usable measurement" in outcome.err
    assert (folder / IN_STORE).exists()


def test_a_failing_script_is_shown_with_its_last_lines(run, sweep):
    sweep.failure = WorkloadError(
        "the factory make failed", found="train.py:3\nValueError: no", next_step="mend it"
    )
    sweep.saves = False
    outcome = run("sweep", "--model", "gpt-tiny", "-q")
    assert outcome.status == 3
    assert outcome.err.splitlines() == [
        "error: the factory make failed",
        "  found:  train.py:3",
        "          ValueError: no",
        "  next:   mend it",
    ]
    loud = run("sweep", "--model", "gpt-tiny", "--debug").err
    assert "Traceback" in loud
    sweep.saves = True
    assert (
        "note: what happened at each size is kept in profiles/"
        in run("sweep", "--model", "mlp").err
    )


def test_verbose_shows_phases_and_the_log(run, sweep):  # noqa: ARG001
    outcome = run("sweep", "--model", "gpt-tiny", "-v")
    assert "step" in outcome.err.splitlines()
    assert "INFO bsprof.cli.terminal: configuration: none in this folder" in outcome.err


def test_the_device_may_come_from_the_environment(run, sweep, monkeypatch):
    monkeypatch.setenv("BSPROF_DEVICE", "mps")
    run("sweep", "--model", "gpt-tiny")
    run("sweep", "--model", "gpt-tiny", "--device", "cpu")
    assert [call["device"] for call in sweep.calls] == ["mps", "cpu"]


def test_a_bug_is_one_short_message(run, sweep):
    sweep.failure = KeyError("oops")
    outcome = run("sweep", "--model", "gpt-tiny", "-q")
    assert outcome.status == 1
    assert outcome.err.splitlines() == [
        "error: a bug in bsprof: KeyError: 'oops'",
        "  next:   rerun with --debug to see where, and report it",
    ]
    with pytest.raises(KeyError):
        run("sweep", "--model", "gpt-tiny", "--debug")


def test_options_of_optimizers_are_json_scalars(run, sweep):
    texts = ["a=1", "b=1.5", "c=true", "d=null", "e=word", "f=True", 'g="1"', "h=x=y", "i=3e-4"]
    run("sweep", "--model", "mlp", *(w for text in texts for w in ("--optimizer-option", text)))
    options = sweep.calls[0]["spec"].optimizer_options
    assert options == {
        "a": 1,
        "b": 1.5,
        "c": True,
        "d": None,
        "e": "word",
        "f": True,
        "g": "1",
        "h": "x=y",
        "i": 3e-4,
    }
    assert json.loads(json.dumps(options)) == options
