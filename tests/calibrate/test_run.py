"""Benchmarks in a real worker: timed on this CPU; deaths, failures and refusals are survived."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bsprof.calibrate import run
from bsprof.calibrate.benchmark import Benchmark
from bsprof.calibrate.run import measure_device
from bsprof.errors import DeviceUnavailable, MeasurementError, UnknownDevice
from bsprof.measure.wire import PhaseLimits

HERE = str(Path(__file__).parent)


def bench(program: str, precision: str = "fp32", **dims: int) -> Benchmark:
    return Benchmark(program=program, dims=dims, precision=precision)


ADD, MUL, SUB, RELU = (
    bench(f"pointwise.{name}", rows=8, columns=8) for name in ("add", "mul", "sub", "relu")
)


@pytest.fixture
def dying(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", HERE)
    monkeypatch.setattr(run, "SESSION", "dying")


@pytest.fixture(scope="module")
def measured():
    chosen = [
        bench("host.operator"),
        bench("host.engine"),
        bench("product.forward", m=24, n=88, k=104),
        bench("convolution.weight", batch=1, channels=8, filters=8, side=9, kernel=3),
        bench("attention.backward", batch=1, heads=2, length=24, head=8, causal=1),
        bench("pointwise.gelu", "fp16", rows=4, columns=4),
    ]
    events = []
    found = measure_device("cpu", seconds=60.0, only=chosen, on_event=events.append)
    return chosen, found, events


def test_everything_is_timed_twice_with_the_pace_beside_it(measured):
    chosen, found, _ = measured
    assert [t.benchmark for t in found.timed] == chosen[:-1]  # a processor has no fp16
    assert found.device.kind == "cpu"
    assert found.skipped == ()
    for timed in found.timed:
        assert len(timed.samples) == run.ROUNDS, timed.benchmark.name
        assert 0 < found.seconds(timed) < 1
        for sample in timed.samples:
            assert len(sample.pace_s) == len(sample.device_s) >= 1
    assert found.usual_pace_s > 0


def test_operators_are_those_of_a_trace(measured):
    _, found, _ = measured
    names = {t.benchmark.program: [o.name for o in t.operators] for t in found.timed}
    assert names["product.forward"] == ["aten.addmm"]
    assert names["convolution.weight"] == ["aten.convolution_backward"]
    assert names["attention.backward"] == [
        "aten._scaled_dot_product_flash_attention_for_cpu_backward"
    ]


def test_progress_is_told(measured):
    _, _, events = measured
    kinds = [event.kind for event in events]
    assert kinds[0] == "start"
    assert kinds[-1] == "end"
    assert any("product.forward" in e.text and "round 2" in e.text for e in events)


def test_without_time_nothing_but_the_start_is_skipped(dying):  # noqa: ARG001
    with pytest.raises(MeasurementError, match="not one benchmark ran"):
        measure_device("cpu", seconds=0.0, only=[RELU])


def test_a_death_a_failure_and_a_refusal_cost_one_benchmark_each(dying):  # noqa: ARG001
    found = measure_device("cpu", seconds=60.0, only=[ADD, MUL, SUB, RELU])
    assert [t.benchmark for t in found.timed] == [RELU]
    assert found.seconds(found.timed[0]) == pytest.approx(1e-3)
    assert set(found.failed) == {ADD.name, MUL.name}
    assert "7" in found.failed[ADD.name]
    assert found.failed[MUL.name] == "RuntimeError: a kernel went wrong"
    assert found.refused == {SUB.name: "not implemented for 'Half'"}


def test_a_device_that_is_not_here_is_told():
    with pytest.raises(DeviceUnavailable, match="cuda:7"):
        measure_device("cuda:7", seconds=1.0, limits=PhaseLimits())
    with pytest.raises(UnknownDevice):
        measure_device("rtx-4090", seconds=1.0)


def test_rounds_are_in_disorder_but_for_what_corrects_the_rest():
    chosen = [bench("host.operator"), *(bench("pointwise.add", rows=n) for n in range(20))]
    first, second = (run._order(chosen, n) for n in range(2))
    assert first[0] == second[0] == chosen[0]
    assert first != second
    assert {b.name for b in first} == {b.name for b in chosen}


def test_the_parent_loads_no_torch():
    import subprocess

    script = (
        "import sys; import bsprof.calibrate.run, bsprof.calibrate.device; "
        "print([n for n in ('torch', 'numpy', 'scipy') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
