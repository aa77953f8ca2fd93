"""`bsprof calibrate`: where its file goes, what it says, and that nothing is lost."""

from __future__ import annotations

import json

import pytest

from bsprof.calibrate.measured import Measured
from bsprof.errors import DeviceUnavailable
from bsprof.hardware.calibration import dump_calibration, load_device_calibration
from bsprof.records import DeviceSnapshot, DeviceSpec, Environment, Quantity
from bsprof.records.calibration import Ceiling, Coefficient, DeviceCalibration, LawTerms

NAME = "cpu-test-2-threads"
SNAPSHOT = DeviceSnapshot(
    kind="cpu", name="Test", capacity_bytes=2**33, usable_bytes=2**32, threads=2
)
SPEC = DeviceSpec(
    name=NAME,
    title="Test",
    kind="cpu",
    architecture="cpu",
    compute_units=2,
    nominal_memory_bytes=2**33,
    capacity_bytes=Quantity.exact(2**33),
    flops_per_s={"fp32": 1e11},
    bandwidth_bytes_per_s=2e10,
    l2_bytes=2**23,
)
CALIBRATION = DeviceCalibration(
    device=NAME,
    spec=SPEC,
    flops_per_s={"fp32": Ceiling(value=1e11, spread=0.05)},
    bandwidth_bytes_per_s=Ceiling(value=2e10, spread=0.05),
    launch_s=Coefficient(value=0.0),
    host_call_s=Coefficient(value=1.2e-5),
    laws={"copy": LawTerms(terms={"bytes": Coefficient(value=5e-11)}, rows=3)},
)


@pytest.fixture
def measuring(monkeypatch):
    """Stands in for the benchmarks; what it was asked for."""
    asked = []

    def measure(device, *, seconds, on_event):
        asked.append((device, seconds))
        assert callable(on_event)
        return Measured(
            device=SNAPSHOT,
            environment=Environment(bsprof="0", python="3", torch="2", platform="here"),
            timed=(),
            refused={"pointwise.add": "no such kernel"},
            skipped=("pointwise.mul",),
            duration_s=61.0,
        )

    monkeypatch.setattr("bsprof.calibrate.run.measure_device", measure)
    monkeypatch.setattr(
        "bsprof.calibrate.device.calibration_of", lambda _measured, _base: CALIBRATION
    )
    return asked


def test_the_file_lies_beside_the_store(run, folder, measuring):
    outcome = run("calibrate", "--device", "cpu")
    assert outcome.status == 0, outcome.err
    path = folder / "calibration" / "rooflines" / f"{NAME}.json"
    assert load_device_calibration(path) == CALIBRATION
    assert f"wrote {path}" in outcome.err
    assert measuring == [("cpu", 60.0)]
    rows = dict(line.split("\t") for line in outcome.out.splitlines())
    assert rows["device"] == NAME
    assert rows["fp32 matmul"] == "100 GFLOP/s"
    assert rows["forward call"] == "12.0 us"
    assert "kernel launch" not in rows  # a processor has none


def test_a_folder_of_the_users_own_is_made(run, folder, measuring, monkeypatch):  # noqa: ARG001
    own = folder / "mine"
    monkeypatch.setenv("BSPROF_CALIBRATION", str(own))
    assert run("calibrate").status == 0
    assert (own / "rooflines" / f"{NAME}.json").is_file()


def test_a_former_calibration_is_replaced_even_if_it_is_broken(run, folder, measuring):  # noqa: ARG001
    path = folder / "calibration" / "rooflines" / f"{NAME}.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert run("calibrate").status == 0
    assert load_device_calibration(path) == CALIBRATION


def test_an_interrupted_run_leaves_the_former_file(run, folder, monkeypatch):
    path = folder / "calibration" / "rooflines" / f"{NAME}.json"
    path.parent.mkdir(parents=True)
    path.write_text(dump_calibration(CALIBRATION))

    def interrupted(*_words, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("bsprof.calibrate.run.measure_device", interrupted)
    outcome = run("calibrate")
    assert outcome.status == 130
    assert "a former calibration stays" in outcome.err
    assert path.read_text() == dump_calibration(CALIBRATION)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_another_file_is_not_overwritten_unless_forced(run, folder, measuring):
    (folder / "mine.json").write_text("precious")
    outcome = run("calibrate", "-o", "mine.json")
    assert outcome.status == 3
    assert "the file exists" in outcome.err
    assert measuring == []  # before a minute is spent
    assert run("calibrate", "-o", "mine.json", "--force").status == 0
    assert load_device_calibration(folder / "mine.json") == CALIBRATION
    assert not (folder / "calibration").exists()


def test_the_document(run, measuring):  # noqa: ARG001
    document = run("calibrate", "--json", "-q").json
    assert document["schema"] == 1
    assert document["calibration"]["device"] == NAME
    assert document["skipped"] == ["pointwise.mul"]
    assert document["refused"] == {"pointwise.add": "no such kernel"}
    assert document["duration_s"] == 61.0


def test_to_stdout(run, folder, measuring):  # noqa: ARG001
    outcome = run("calibrate", "-o", "-")
    assert json.loads(outcome.out)["device"] == NAME
    assert not (folder / "calibration").exists()
    assert run("calibrate", "-o", "-", "--json").status == 2


def test_the_time_budget(run, measuring):
    assert run("calibrate", "--time-budget", "90s").status == 0
    assert measuring == [("auto", 90.0)]


def test_a_device_that_is_not_here(run, monkeypatch):
    def none(*_words, **_options):
        raise DeviceUnavailable("cannot open device cuda", found="none", next_step="use cpu")

    monkeypatch.setattr("bsprof.calibrate.run.measure_device", none)
    outcome = run("calibrate", "--device", "cuda")
    assert outcome.status == 3
    assert outcome.err.splitlines()[0] == "error: cannot open device cuda"


def test_predictions_name_a_broken_file(run, folder):
    path = folder / "calibration" / "rooflines" / "x.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    outcome = run("sweep", "--model", "mlp", "--device", "no-such-device", "--predict")
    assert outcome.status == 3
    assert "x.json" in outcome.err
    assert "calibrate anew" in outcome.err
