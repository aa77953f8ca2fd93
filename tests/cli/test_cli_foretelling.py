"""`compare` and `recommend` for devices of which nothing is stored: they are predicted first."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsprof.errors import MeasurementError
from bsprof.fit.samples import spread_of_outcomes
from bsprof.predict.scenarios import factors
from bsprof.records import (
    DeviceSnapshot,
    HeavyOperator,
    Mode,
    Origin,
    Point,
    PointPrediction,
    PointStatus,
    Precision,
    Prediction,
    Quantity,
    Regime,
    TimeWorlds,
    WorkloadSpec,
    per_second,
)
from bsprof.store import load, profile_path, save

GIB = 2**30
SLOPES_S = {"rtx-4090": 0.02, "a100-80gb-sxm": 0.01, "h100-80gb-sxm": 0.004, "t4": 0.06}
"""Seconds a sample on each card."""


def made_point(device, size):
    seconds, used = 0.002 + SLOPES_S[device] * size, (1 + 0.25 * size) * GIB
    rows = tuple(seconds * f for f in factors(f"machine {device}", 0.1))
    step = spread_of_outcomes(seconds, rows)
    return Point(
        micro_batch_size=size,
        status=PointStatus.OK,
        micro_step_s=step,
        samples_per_s=per_second(size, step),
        device_used_bytes=Quantity(value=used, low=0.97 * used, high=1.03 * used),
        alloc_retries=0,
        prediction=PointPrediction(
            worlds=TimeWorlds(micro_step_s=rows),
            seconds_by_class={"matmul": 0.8 * seconds, "softmax": 0.2 * seconds},
            host_s=0.001,
            heaviest=(
                HeavyOperator(
                    name="aten.mm",
                    work_class="matmul",
                    shape="(8, 8) by (8, 8), fp32",
                    count=3,
                    seconds=0.8 * seconds,
                    flops=3072,
                    bytes=2304,
                    regime=Regime.COMPUTE,
                ),
            ),
        ),
    )


class Foretold:
    """Stands in for `predict_sweeps`: remembers what it was asked, returns made profiles."""

    def __init__(self, make_profile):
        self.make_profile = make_profile
        self.calls = []
        self.failure = None

    def __call__(self, spec, devices, *, world_size, store, on_event, **_options):
        assert on_event is not None
        self.calls.append((spec, [device.name for device in devices], world_size))
        if self.failure is not None:
            raise self.failure
        profiles = []
        for device in devices:
            profile = self.make_profile(
                origin=Origin.PREDICTED,
                workload=spec,
                device=DeviceSnapshot(
                    kind="cuda",
                    name=device.title,
                    capacity_bytes=24 * GIB,
                    usable_bytes=24 * GIB,
                    details={"catalogue": device.name},
                ),
                ranks=world_size,
                parallel="none" if world_size == 1 else "ddp",
                points=tuple(made_point(device.name, b) for b in (1, 4, 16, 64)),
                prediction=Prediction(
                    device=device.name,
                    software={"torch": "2.13"},
                    timing=("bandwidth: a table", "shapes: measured on this family"),
                ),
            )
            save(profile, profile_path(profile, store))
            profiles.append(profile)
        return tuple(profiles)


@pytest.fixture
def foretold(monkeypatch, make_profile):
    fake = Foretold(make_profile)
    monkeypatch.setattr("bsprof.predict.sweep.predict_sweeps", fake)
    return fake


TWO = ("compare", "--model", "gpt2", "--device", "a100-80gb-sxm", "--device", "h100-80gb-sxm")


def test_devices_are_predicted_and_ranked(run, foretold, folder):
    outcome = run(*TWO)
    assert outcome.status == 0, outcome.err
    assert foretold.calls == [(WorkloadSpec(model="gpt2"), ["a100-80gb-sxm", "h100-80gb-sxm"], 1)]
    lines = outcome.out.splitlines()
    assert lines[0].startswith(
        "NVIDIA H100 80GB HBM3 is predicted to be 2.51 times as fast as NVIDIA A100-SXM4-80GB ("
    )
    assert (
        "ranked by time\tNVIDIA H100 80GB HBM3, NVIDIA A100-SXM4-80GB "
        "(the order is right with probability 98 %)" in lines
    )
    assert "Time of a micro-step by size" in lines
    assert "ranked by cost" not in outcome.out
    name = "nvidia-h100-80gb-hbm3-predicted/gpt2/20260114T090000Z"
    assert f"note: predicted for NVIDIA H100 80GB HBM3: profile {name}" in outcome.err
    assert load(folder / f"profiles/{name}.json").origin is Origin.PREDICTED
    assert outcome.err.count("All numbers are predicted; nothing was measured.") == 1


def test_prices_rank_by_cost(run, foretold):
    words = ("--device", "4090", "--price", "a100-80gb-sxm=1.5", "--price", "h100-80gb-sxm=3")
    outcome = run(*TWO, *words, "--price", "rtx-4090=0.3")
    assert outcome.status == 0, outcome.err
    assert foretold.calls[0][1] == ["a100-80gb-sxm", "h100-80gb-sxm", "rtx-4090"]
    [line] = [text for text in outcome.out.splitlines() if text.startswith("ranked by cost")]
    assert line.startswith("ranked by cost\tNVIDIA GeForce RTX 4090, NVIDIA H100 80GB HBM3, ")
    assert "the first is right with probability" in line
    document = run(*TWO, "--price", "cuda=2", "--json").json
    first, second = document["profiles"]
    assert first["price_per_hour"] == 2.0
    assert first["cost_per_million"]["value"] > second["cost_per_million"]["value"] > 0
    assert [r["by"] for r in document["rankings"]] == ["time", "cost"]


def test_a_target_compares_their_plans(run, foretold):
    outcome = run(*TWO, "--target-batch", "512", "--world-size", "4")
    assert outcome.status == 0, outcome.err
    assert foretold.calls[0][2] == 4
    assert "compared\tthe recommended plans for 512 samples per update over 4 ranks" in outcome.out
    assert "accumulation steps\t" in outcome.out


def test_what_is_predicted_is_what_was_asked(run, foretold):
    outcome = run(
        *TWO,
        *("--precision", "amp-bf16", "--seq-len", "512", "--optimizer", "sgd"),
        *("--activation-checkpointing", "full", "--compile", "--channels-last"),
    )
    assert outcome.status == 0, outcome.err
    assert foretold.calls[0][0] == WorkloadSpec(
        model="gpt2",
        seq_len=512,
        precision=Precision.AMP_BF16,
        optimizer="sgd",
        activation_checkpointing="full",
        compile=True,
        channels_last=True,
    )
    assert foretold.calls[0][0].mode is Mode.TRAIN


def test_a_stored_profile_stands_beside_a_prediction(run, foretold, stored):  # noqa: ARG001
    outcome = run("compare", "cpu-test-3000", "--model", "gpt-tiny", "--device", "t4")
    assert outcome.status == 0, outcome.err
    assert foretold.calls[0][1] == ["t4"]
    assert "Tesla T4" in outcome.out.splitlines()[0]
    assert "the numbers are predicted, not measured" in outcome.err


def test_a_report_of_them_is_written(run, foretold, folder):  # noqa: ARG001
    outcome = run(*TWO, "-o", "c.html")
    assert outcome.status == 0, outcome.err
    assert "is predicted to be" in (folder / "c.html").read_text()


def test_an_interruption_keeps_nothing(run, foretold):
    foretold.failure = KeyboardInterrupt()
    outcome = run(*TWO)
    assert outcome.status == 130
    assert "interrupted; a prediction keeps nothing until it is whole" in outcome.err
    foretold.failure = MeasurementError("no memory to trace it")
    assert "no memory to trace it" in run(*TWO).err


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["--model", "gpt2"], 2, "at least two devices to predict gpt2 for"),
        (["--model", "gpt2", "--device", "t4"], 2, "at least two devices"),
        (["--model", "gpt2", "--device", "rtx-4090", "--device", "4090"], 2, "at least two"),
        (["--model", "gpt2", "--device", "t4", "--device", "t5"], 3, "cannot find a device"),
        (["--device", "t4", "--device", "l4"], 2, "--device has no effect on stored profiles"),
        (["a", "b", "--precision", "bf16"], 2, "--precision has no effect on a stored profile"),
        (["a", "b", "--compile"], 2, "--compile has no effect on a stored profile"),
        ([*TWO[1:], "--price", "l4=1"], 2, "a price is given for l4, and nothing"),
        ([*TWO[1:], "--price", "l4"], 2, "cannot read --price 'l4'"),
        ([*TWO[1:], "--price", "=2"], 2, "cannot read --price '=2'"),
        ([*TWO[1:], "--price", "t4=-1"], 2, "cannot read --price"),
        ([*TWO[1:], "--price", "t4=inf"], 2, "cannot read --price"),
        ([*TWO[1:], "--price", "t4=1", "--price", "t4=2"], 2, "--price t4 is given twice"),
        ([*TWO[1:], "--precision", "int8"], 2, "int8"),
        ([*TWO[1:], "--activation-checkpointing", "some"], 2, "some"),
        (["--model", "gpt3", *TWO[3:]], 2, "unknown model 'gpt3'"),
    ],
)
def test_it_refuses_before_predicting(run, foretold, words, status, text):
    outcome = run("compare", *words)
    assert outcome.status == status, outcome.err
    assert text in outcome.err
    assert outcome.out == ""
    assert foretold.calls == []


def test_a_sweep_answers_with_the_best_size_and_with_details_when_asked(run, foretold):
    outcome = run("sweep", "--model", "gpt2", "--device", "t4")
    assert outcome.status == 0, outcome.err
    assert len(foretold.calls) == 1
    lines = outcome.out.splitlines()
    assert lines[0] == "gpt2: micro-batch 4 is predicted best, 16.5 samples/s in micro-steps"
    assert "how sure\twith probability 98 % no size that fits is more than 1.0 % faster" in (
        outcome.out
    )
    assert "aten.mm" not in outcome.out
    assert "why\t" not in outcome.out
    told = run("sweep", "--model", "gpt2", "--device", "t4", "-v").out
    assert "why\tBandwidth: a table." in told
    assert "Where the time of a micro-step goes" in told
    assert "aten.mm\t(8, 8) by (8, 8), fp32\t3\t" in told


RECOMMEND = ("recommend", "--model", "gpt2", "--device", "h100-80gb-sxm", "--target-batch", "512")


def test_recommend_predicts_what_is_not_stored(run, foretold):
    outcome = run(*RECOMMEND)
    assert outcome.status == 0, outcome.err
    assert foretold.calls == [(WorkloadSpec(model="gpt2"), ["h100-80gb-sxm"], 1)]
    assert outcome.out.startswith("micro-batch 64 x 8 accumulation steps")
    assert "predicted to take" in outcome.out
    assert "checked\tno: predicted, and not run" in outcome.out
    assert "note: predicted for NVIDIA H100 80GB HBM3: profile nvidia-h100" in outcome.err


def test_recommend_reads_what_is_stored_and_predicts_what_is_asked(run, foretold):
    assert run(*RECOMMEND).status == 0
    again = run(*RECOMMEND)
    assert len(foretold.calls) == 1
    assert "the newest in profiles" in again.err
    assert run(*RECOMMEND, "--precision", "amp-bf16").status == 0
    assert foretold.calls[1][0].precision is Precision.AMP_BF16
    document = run(*RECOMMEND, "--world-size", "8", "--seq-len", "256", "--json").json
    assert foretold.calls[2][2] == 8
    assert document["world_size"] == 8
    assert document["step_time_s"]["low"] < document["step_time_s"]["value"]
    assert document["regime"] == "unknown"


def test_recommend_of_several_ranks_is_predicted_for_them(run, foretold):
    outcome = run(*RECOMMEND, "--world-size", "8")
    assert foretold.calls[0][2] == 8
    assert outcome.out.startswith("micro-batch 64 x 1 accumulation step x 8 ranks")
    assert "for one rank" not in outcome.err


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["--model", "gpt2", "--precision", "bf16"], 2, "--precision has no effect on a stored"),
        (["--model", "gpt2", "--device", "cpu", "--compile"], 2, "--compile has no effect"),
        (["--image-size", "64"], 2, "--image-size has no effect on a stored profile"),
        (["--model", "gpt2", "--device", "cpu"], 3, "one of `bsprof devices` to predict it for"),
        (["--model", "gpt2", "--device", "h1000"], 3, "one of `bsprof devices`"),
        (["--device", "rtx-4090"], 3, "no profile on rtx-4090"),
        (["--model", "gpt3", "--device", "t4"], 2, "unknown model 'gpt3'"),
        (["--model", "gpt2", "--device", "t4", "--precision", "int8"], 2, "int8"),
    ],
)
def test_recommend_refuses_before_predicting(run, foretold, stored, words, status, text):  # noqa: ARG001
    outcome = run("recommend", "--target-batch", "8", *words)
    assert outcome.status == status, outcome.err
    assert text in outcome.err
    assert outcome.out == ""
    assert foretold.calls == []


def test_a_store_that_cannot_be_written_is_told_before_predicting(run, foretold, folder):
    (folder / "profiles").write_text("a file")
    outcome = run(*RECOMMEND, "--precision", "bf16")
    assert outcome.status == 3
    assert "cannot write to the store profiles" in outcome.err
    assert foretold.calls == []


def test_for_real(run, folder):
    words = ("compare", "--model", "mlp", "--device", "t4", "--device", "h100-80gb-sxm")
    outcome = run(*words, "--price", "t4=0.35", "--price", "h100-80gb-sxm=3")
    assert outcome.status == 0, outcome.err
    assert "NVIDIA H100 80GB HBM3 is predicted to be" in outcome.out
    assert "ranked by cost\t" in outcome.out
    [path] = Path(folder).glob("profiles/tesla-t4-predicted/mlp/*.json")
    assert all(p.prediction.worlds for p in load(path).ok_points())
    answer = run("recommend", "--model", "mlp", "--device", "t4", "--target-batch", "4096")
    assert answer.status == 0, answer.err
    assert "why\tHow sure: these times are predicted" in answer.out
    report = run("report", "tesla-t4-predicted", "-o", "r.md")
    assert report.status == 0, report.err
    text = (folder / "r.md").read_text()
    assert "## Where the times come from" in text
    assert "Heaviest operators" in text
