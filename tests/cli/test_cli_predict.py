"""`bsprof sweep --device NAME`: what arrives, what is refused, and what is answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bsprof.errors import DeviceUnavailable
from bsprof.hardware.catalogue import find_device
from bsprof.measure.events import SweepEvent
from bsprof.predict.target import Software
from bsprof.records import (
    DeviceSnapshot,
    Origin,
    Point,
    PointPrediction,
    PointStatus,
    Prediction,
    Quantity,
    SweepPlan,
    WorkloadSpec,
)
from bsprof.store import load, profile_path, save

GIB = 2**30


def _points():
    for size in (1, 2, 4):
        used = Quantity(value=size * GIB, low=0.98 * size * GIB, high=1.02 * size * GIB)
        yield Point(
            micro_batch_size=size,
            status=PointStatus.OK,
            peak_allocated_bytes=used,
            peak_reserved_bytes=used,
            device_used_bytes=used,
            alloc_retries=0,
            prediction=PointPrediction(top_modules={"layers.0": size * GIB}),
        )


class FakePrediction:
    """Stands in for `predict_sweeps`: remembers its arguments, saves and returns made profiles."""

    def __init__(self, make_profile):
        self.make_profile = make_profile
        self.points = tuple(_points())
        self.failure = None
        self.calls = []

    def __call__(self, spec, devices, *, output, store, on_event, **options):
        self.calls.append({"spec": spec, "devices": devices, "output": output, **options})
        if self.failure is not None:
            raise self.failure
        profiles = [
            self.make_profile(
                origin=Origin.PREDICTED,
                workload=spec,
                device=DeviceSnapshot(
                    kind="cuda",
                    name=device.title,
                    capacity_bytes=24 * GIB,
                    usable_bytes=24 * GIB,
                    details={"catalogue": device.name},
                ),
                points=self.points,
                max_micro_batch_size=Quantity(value=20, low=18, high=22),
                prediction=Prediction(device=device.name),
            )
            for device in devices
        ]
        for point in self.points:
            text = f"size {point.micro_batch_size}"
            on_event(SweepEvent(kind="point", text=text, point=point))
        for profile in profiles:
            save(profile, output or profile_path(profile, store))
        return tuple(profiles)


@pytest.fixture
def prediction(monkeypatch, make_profile):
    fake = FakePrediction(make_profile)
    monkeypatch.setattr("bsprof.predict.sweep.predict_sweeps", fake)
    return fake


def test_a_catalogue_name_predicts(run, prediction, sweep, folder):
    outcome = run("sweep", "--model", "gpt-tiny", "--device", "rtx-4090")
    assert outcome.status == 0, outcome.err
    assert sweep.calls == []
    [call] = prediction.calls
    assert call["devices"] == (find_device("rtx-4090"),)
    assert call["spec"] == WorkloadSpec(model="gpt-tiny")
    assert call["plan"] == SweepPlan()
    assert call["output"] is None
    assert call["software"] is None
    path = "profiles/nvidia-geforce-rtx-4090-predicted/gpt-tiny/20260114T090000Z.json"
    assert outcome.err.splitlines() == ["size 1", "size 2", "size 4", f"wrote {path}"]
    assert load(folder / path).origin is Origin.PREDICTED
    assert "predicted for" in outcome.out


def test_options_of_a_prediction_arrive(run, prediction):
    outcome = run(
        *("sweep", "--model", "gpt-tiny", "--device", "NVIDIA GeForce RTX 4090"),
        *("--software", "torch=2.4,cudnn=8", "--world-size", "8", "--parallel", "fsdp"),
        *("--allocator-conf", "expandable_segments:True", "--other-memory", "1GiB"),
        *("--memory-limit", "20GiB", "--micro-batch-sizes", "1,2", "-o", "p.json", "-q"),
    )
    assert outcome.status == 0, outcome.err
    assert outcome.err == ""
    [call] = prediction.calls
    assert call["software"] == Software(torch=(2, 4), cudnn=8, cuda=(12, 1))
    assert (call["world_size"], call["parallel"]) == (8, "fsdp")
    assert call["allocator_conf"] == "expandable_segments:True"
    assert call["other_bytes"] == GIB
    assert call["plan"] == SweepPlan(micro_batch_sizes=(1, 2), memory_limit_bytes=20 * GIB)
    assert call["output"] == Path("p.json")


def test_json_is_the_profile_and_nothing_else(run, prediction, folder):  # noqa: ARG001
    outcome = run("sweep", "--model", "gpt-tiny", "--device", "rtx-4090", "--json")
    path = folder / "profiles/nvidia-geforce-rtx-4090-predicted/gpt-tiny/20260114T090000Z.json"
    assert outcome.out == path.read_text()
    assert outcome.json["origin"] == "predicted"


def test_several_devices_are_one_document_with_a_profile_each(run, prediction):
    words = ("--device", "rtx-4090", "--device", "a100-80gb-sxm", "--device", "4090")
    outcome = run("sweep", "--model", "gpt-tiny", *words, "--json")
    assert outcome.status == 0, outcome.err
    assert [p["prediction"]["device"] for p in outcome.json["profiles"]] == [
        "rtx-4090",
        "a100-80gb-sxm",
    ]
    assert len(prediction.calls) == 1
    drawn = run("sweep", "--model", "gpt-tiny", *words)
    assert drawn.out.count("predicted for") == 2
    assert sum(line.startswith("wrote") for line in drawn.err.splitlines()) == 2


def test_the_device_of_the_environment_may_be_one_to_predict_for(run, prediction, monkeypatch):
    monkeypatch.setenv("BSPROF_DEVICE", "rtx-4090")
    assert run("sweep", "--model", "gpt-tiny").status == 0
    assert len(prediction.calls) == 1


def test_interruption_keeps_nothing_and_says_so(run, prediction):
    prediction.failure = KeyboardInterrupt()
    outcome = run("sweep", "--model", "gpt-tiny", "--device", "rtx-4090")
    assert outcome.status == 130
    assert outcome.err.splitlines() == ["interrupted; a prediction keeps nothing until it is whole"]


def test_where_nothing_fits_the_status_is_4_and_the_profile_is_kept(run, prediction, folder):
    prediction.points = (Point(micro_batch_size=1, status=PointStatus.OOM),)
    outcome = run("sweep", "--model", "gpt-tiny", "--device", "rtx-4090", "-o", "p.json")
    assert outcome.status == 4
    assert (folder / "p.json").exists()


@pytest.mark.parametrize(
    ("words", "status", "first", "rest"),
    [
        (["--time-budget", "2m"], 2, "--time-budget has no effect with a pred", "measures nothing"),
        (["--find-max"], 2, "--find-max has no effect with a prediction", "always looks"),
        (["--relative-error", "1%"], 2, "--relative-error has no effect", "measured times"),
        (["--loader", "data.py:make"], 2, "--loader has no effect", "measured"),
        (["--resume"], 2, "--resume has no effect", "anew"),
        (["--software", "torch=2"], 2, "cannot read --software", "torch=2.13,cudnn=9"),
        (["--software", "torch=2.1,torch=2.2"], 2, "cannot read --software", "cuda=12.8"),
        (["--software", "numpy=1.2"], 2, "cannot read --software", "left out"),
        (["--world-size", "0"], 2, "Invalid value for '--world-size'", "--help"),
        (["-o", "p.json", "--device", "a100-80gb-sxm"], 2, "one file cannot hold", "-o"),
        (["--device", "cpu"], 2, "cannot measure on cpu and on another", "once"),
        (["--device", "rtx-4091"], 3, "cannot find a device named 'rtx-4091'", "rtx-4090"),
        (["--predict", "--device", "mps"], 2, "cannot predict for mps", "CUDA"),
    ],
)
def test_what_makes_no_sense_is_refused(run, prediction, words, status, first, rest):
    outcome = run("sweep", "--model", "gpt-tiny", "--device", "rtx-4090", *words)
    assert outcome.status == status, outcome.err
    assert outcome.out == ""
    assert outcome.err.splitlines()[0].startswith(f"error: {first}")
    assert rest in outcome.err
    assert prediction.calls == []


@pytest.mark.parametrize(
    "words",
    [
        ["--software", "torch=2.13"],
        ["--world-size", "2"],
        ["--parallel", "ddp"],
        ["--allocator-conf", "expandable_segments:True"],
        ["--other-memory", "1GiB"],
    ],
)
def test_options_of_predictions_are_refused_where_a_sweep_measures(run, sweep, words):
    outcome = run("sweep", "--model", "gpt-tiny", *words)
    assert outcome.status == 2
    assert f"{words[0]} has no effect where a sweep measures" in outcome.err
    assert sweep.calls == []


def test_what_a_configuration_says_of_measuring_gives_way(run, prediction, folder):
    (folder / "bsprof.toml").write_text('[sweep]\ntime-budget = "2m"\nfind-max = true\n')
    outcome = run("sweep", "--model", "gpt-tiny", "--device", "rtx-4090")
    assert outcome.status == 0, outcome.err
    assert len(prediction.calls) == 1


def test_an_unknown_name_tells_of_both_worlds(run):
    err = run("sweep", "--model", "gpt-tiny", "--device", "cuda-4090").err
    assert "bsprof devices" in err
    assert "auto, cpu, cuda, cuda:N, mps or xpu" in err


def test_predict_without_an_accelerator_names_the_way(run, monkeypatch):
    def none_here(name):
        raise DeviceUnavailable(f"cannot predict for this machine's {name}", found="none")

    monkeypatch.setattr("bsprof.predict.here.device_here", none_here)
    outcome = run("sweep", "--model", "gpt-tiny", "--predict")
    assert outcome.status == 3
    assert "cannot predict for this machine's auto" in outcome.err


def test_predict_is_for_the_device_of_this_machine(run, prediction, monkeypatch):
    asked = []

    def here(name):
        asked.append(name)
        return find_device("rtx-4090")

    monkeypatch.setattr("bsprof.predict.here.device_here", here)
    assert run("sweep", "--model", "gpt-tiny", "--predict").status == 0
    assert run("sweep", "--model", "gpt-tiny", "--predict", "--device", "cuda:1").status == 0
    assert asked == ["auto", "cuda:1"]
    assert [call["devices"][0].name for call in prediction.calls] == ["rtx-4090", "rtx-4090"]


def test_the_document_of_a_prediction_reads_back(run, prediction, tmp_path):  # noqa: ARG001
    outcome = run("sweep", "--model", "gpt-tiny", "--device", "rtx-4090", "-o", "p.json")
    assert outcome.status == 0
    document = json.loads(Path("p.json").read_text())
    assert document["points"][0]["prediction"]["top_modules"] == {"layers.0": GIB}
    assert load(Path("p.json")).points[0].prediction.top_modules == {"layers.0": GIB}
