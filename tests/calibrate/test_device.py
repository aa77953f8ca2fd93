"""From benchmarks to a device's calibration: floors taken off, data sheet made, file kept."""

from __future__ import annotations

import dataclasses

import pytest

from bsprof.calibrate.benchmark import Benchmark
from bsprof.calibrate.describe import described
from bsprof.calibrate.device import calibration_of, device_name
from bsprof.calibrate.measured import Measured, Sample, Timed
from bsprof.calibrate.rows import host_costs, kernel_rows, processor_rows
from bsprof.calibrate.shapes import benchmarks
from bsprof.errors import CalibrationError, FitError
from bsprof.hardware.calibration import (
    device_calibration_path,
    load_device_calibration,
    packaged_calibration,
    save_calibration,
)
from bsprof.predict.roofline import Roofline
from bsprof.predict.target import Semantics, TraceTarget
from bsprof.records import DeviceSnapshot, Environment

GIB = 2**30
CPU = DeviceSnapshot(
    kind="cpu", name="AMD EPYC 7763", capacity_bytes=8 * GIB, usable_bytes=7 * GIB, threads=4
)
H100 = DeviceSnapshot(
    kind="cuda",
    name="NVIDIA H100 80GB HBM3",
    capacity_bytes=round(79.2 * GIB),
    usable_bytes=79 * GIB,
    compute_units=132,
    details={"capability": "9.0"},
)
UNKNOWN = dataclasses.replace(H100, name="NVIDIA X1", compute_units=99)
ENVIRONMENT = Environment(bsprof="0.1", python="3.11", torch="2.13.0", platform="Linux")


def chosen(kind: str) -> list[Benchmark]:
    """One of each program, and products, streams and pages of several sizes."""
    first = {(b.program, b.precision): b for b in benchmarks(kind)}
    several = ("product.forward", "pointwise.add", "copy.onto", "copy.made", "copy.filled")
    more = [b for b in benchmarks(kind) if b.program in several]
    return list({b.name: b for b in (*first.values(), *more)}.values())


def flops_and_bytes(operators) -> tuple[int, int]:
    flops = sum(int(o.attributes.get("flops") or 0) for o in operators)
    return flops, sum(int(o.attributes.get("moved") or 0) for o in operators)


def made(device: DeviceSnapshot, rate: float, bandwidth: float, call_s: float) -> Measured:
    """A device on which everything takes its FLOPs, its bytes and a call."""
    benches = chosen(device.kind)
    target = TraceTarget(semantics=Semantics(device.kind), compute_capability=(9, 0))
    timed = []
    for bench, stream in zip(benches, described(benches, target, lambda: None), strict=True):
        flops, moved = flops_and_bytes(stream.operators)
        seconds = flops / rate + moved / bandwidth + call_s * len(stream.operators)
        if bench.program == "copy.made":
            seconds += 4 * bench.dims["rows"] * bench.dims["columns"] * 5e-10
        sample = Sample(device_s=(seconds,) * 3, host_s=(call_s * len(stream.operators),) * 3)
        timed.append(Timed(benchmark=bench, operators=tuple(stream.operators), samples=(sample,)))
    return Measured(device=device, environment=ENVIRONMENT, timed=tuple(timed), duration_s=61.0)


@pytest.fixture(scope="module")
def processor():
    return made(CPU, rate=1e11, bandwidth=2e10, call_s=3e-6)


@pytest.fixture(scope="module")
def gpu():
    return made(H100, rate=3e14, bandwidth=2.5e12, call_s=4e-6)


def test_host_costs_are_by_operator(processor):
    costs = host_costs(processor)
    for cost in (costs.operator_s, costs.call_s, costs.backward_call_s, costs.optimizer_call_s):
        assert cost.value == pytest.approx(3e-6)
    assert costs.operator_s.error > 0


def test_rows_of_a_processor_are_without_the_call(processor):
    for row in processor_rows(processor):
        assert row.footprint_bytes > 0
        if row.work.kernel_area == 1:  # bytes of a convolution are those of its operands alone
            expected = row.work.flops / 1e11 + row.work.bytes / 2e10
            assert row.seconds == pytest.approx(expected, rel=0.3, abs=1e-6), row.work


def test_rows_of_a_gpu_hold_their_launches(gpu):
    rows = kernel_rows(gpu, "h100-80gb-sxm")
    assert len(rows) > 40
    for row in rows:
        assert row.seconds >= 4e-6
        assert row.device == "h100-80gb-sxm"


def test_a_processor_is_described_by_what_was_measured(processor):
    found = calibration_of(processor, None)
    spec = found.spec
    assert found.device == spec.name == "cpu-amd-epyc-7763-4-threads"
    assert (spec.kind, spec.compute_units) == ("cpu", 4)
    assert spec.flops_per_s["fp32"] == pytest.approx(1e11, rel=0.15)
    assert found.bandwidth_bytes_per_s.value == pytest.approx(2e10, rel=0.05)
    assert found.laws["pages"].terms["memory_bytes"].value == pytest.approx(5e-10)
    assert found.host_call_s.value == pytest.approx(3e-6)
    assert "torch 2.13.0" in found.sources[0]
    assert "4 threads" in found.sources[0]


def test_its_roofline_gives_back_what_was_measured(processor):
    found = calibration_of(processor, None)
    base = packaged_calibration()
    known = dataclasses.replace(base, devices={**base.devices, found.device: found})
    roofline = Roofline.of(found.spec, known)
    for row in processor_rows(processor):
        if row.work.flops > 1e7:
            seconds = roofline.seconds(dataclasses.replace(row.work, calls=0))
            assert seconds == pytest.approx(row.seconds, rel=0.35), row.work


def test_a_known_gpu_keeps_its_name_and_its_data_sheet(gpu):
    found = calibration_of(gpu, packaged_calibration())
    assert found.device == device_name(H100) == "h100-80gb-sxm"
    assert found.spec is None
    assert found.launch_s.value == pytest.approx(4e-6)
    assert found.flops_per_s["bf16"].value == pytest.approx(3e14, rel=0.2)
    assert "matmul/half" in found.laws


def test_an_unknown_gpu_is_described_by_what_it_reached(gpu):
    measured = dataclasses.replace(gpu, device=UNKNOWN)
    found = calibration_of(measured, packaged_calibration())
    assert found.device == "nvidia-x1-99"
    assert found.spec.architecture == "hopper"
    assert found.spec.compute_capability == (9, 0)
    assert found.spec.bandwidth_bytes_per_s == pytest.approx(2.5e12, rel=0.2)
    assert "not in the catalogue" in found.spec.notes[0]


def test_too_little_is_told(processor):
    few = dataclasses.replace(
        processor,
        timed=tuple(t for t in processor.timed if t.benchmark.program.startswith("host.")),
    )
    with pytest.raises(FitError, match="cannot calibrate AMD EPYC 7763"):
        calibration_of(few, None)


def test_what_was_left_out_is_said(processor):
    cut = dataclasses.replace(processor, skipped=("a", "b"), failed={"c": "why"})
    sources = calibration_of(cut, None).sources
    assert sources[1] == "2 benchmarks were left out for lack of time"
    assert sources[2] == "1 benchmarks failed"


def test_the_file_reads_back(processor, gpu, tmp_path):
    for measured, base in ((processor, None), (gpu, packaged_calibration())):
        found = calibration_of(measured, base)
        path = device_calibration_path(tmp_path, found.device)
        save_calibration(path, found)
        assert load_device_calibration(path) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "no JSON"),
        ('{"schema": 99}', "format 99"),
        ('{"schema": 1, "device": "x", "laws": 3}', "laws"),
        ('{"schema": 1}', "device"),
    ],
)
def test_a_broken_file_is_told_with_its_place(tmp_path, text, found):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(CalibrationError) as caught:
        load_device_calibration(path)
    assert str(path) in caught.value.doing
    assert found in caught.value.found
    assert "calibrate anew" in caught.value.next_step


def test_a_drifting_machine_is_taken_at_its_usual_pace():
    slow = Sample(device_s=(2e-3,) * 3, host_s=(2e-3,) * 3, pace_s=(4e-3,) * 3)
    usual = Sample(device_s=(1e-3,) * 9, host_s=(1e-3,) * 9, pace_s=(2e-3,) * 9)
    bench = Benchmark(program="pointwise.add", dims={"rows": 1, "columns": 1})
    timed = Timed(benchmark=bench, operators=(), samples=(slow, usual))
    measured = Measured(device=CPU, environment=ENVIRONMENT, timed=(timed,))
    assert measured.usual_pace_s == 2e-3
    assert measured.seconds(timed) == pytest.approx(1e-3)
    assert measured.host_seconds(timed) == pytest.approx(1e-3)
