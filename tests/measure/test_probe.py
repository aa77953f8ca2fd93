"""The probe: sane numbers on this CPU in little time, refused types, restored settings."""

import time

import pytest
import torch

from bsprof.hardware.peaks import device_key
from bsprof.measure import probe
from bsprof.measure.devices.cpu import CpuDevice
from bsprof.measure.probe import probe_peaks


@pytest.fixture(scope="module")
def peaks_and_seconds():
    before = torch.get_float32_matmul_precision()
    device = CpuDevice(2 * 2**30)
    start = time.perf_counter()
    peaks = probe_peaks(device, part_s=0.05)
    seconds = time.perf_counter() - start
    assert torch.get_float32_matmul_precision() == before
    return peaks, seconds, device


def test_peaks_are_sane(peaks_and_seconds):
    peaks, _, device = peaks_and_seconds
    assert set(peaks.flops_per_s) <= {"fp32", "bf16", "fp16"}
    assert 1e8 < peaks.flops_per_s["fp32"] < 1e14
    assert 1e8 < peaks.bandwidth_bytes_per_s < 1e13
    assert 1e-8 < peaks.launch_s < 1e-3
    assert peaks.source == "probe"
    assert peaks.device_key == device_key(device.snapshot(), torch.__version__)
    assert peaks.measured_at is not None
    assert peaks.measured_at.endswith("+00:00")


def test_the_probe_is_short(peaks_and_seconds):
    _, seconds, _ = peaks_and_seconds
    assert seconds < 10  # a twentieth of a second for each part, on a busy machine


def test_a_type_that_the_device_refuses_is_left_out(monkeypatch):
    real = torch.mm

    def picky(left, right, *, out):
        if left.dtype is torch.float16:
            raise RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'")
        return real(left, right, out=out)

    monkeypatch.setattr(torch, "mm", picky)
    peaks = probe_peaks(CpuDevice(2**30), part_s=0.01)
    assert "fp16" not in peaks.flops_per_s
    assert "fp32" in peaks.flops_per_s


def test_another_error_is_not_swallowed(monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch, "mm", broken)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        probe_peaks(CpuDevice(2**30), part_s=0.01)


class FakeClock:
    """A clock that only work and synchronising move."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class QueueDevice:
    """An accelerator: work is queued at once and runs when somebody synchronises."""

    kind = "cuda"

    def __init__(self, clock: FakeClock, costs: list[float]) -> None:
        self.clock, self.costs, self.queued, self.calls = clock, costs, 0.0, 0

    def work(self) -> None:
        self.queued += self.costs[min(self.calls, len(self.costs) - 1)]
        self.calls += 1

    def synchronize(self) -> None:
        self.clock.now += self.queued
        self.queued = 0.0


def timed(monkeypatch, costs: list[float], deadline: float):
    clock = FakeClock()
    monkeypatch.setattr(probe.time, "perf_counter", clock.perf_counter)
    device = QueueDevice(clock, costs)
    return probe._best_seconds(device, device.work, deadline), device, clock


def test_queued_work_is_timed_to_its_end(monkeypatch):
    best, device, clock = timed(monkeypatch, [0.001], 10.0)
    assert best == pytest.approx(0.001)
    assert clock.now < 0.5  # stable: ended long before the deadline
    assert device.calls > 20  # queued in blocks, not one by one


def test_the_best_block_wins_over_a_slow_start(monkeypatch):
    best, _, _ = timed(monkeypatch, [0.05, 0.02, 0.004, 0.002], 10.0)
    assert best == pytest.approx(0.002)


def test_one_call_beyond_the_deadline_is_an_answer(monkeypatch):
    best, device, _ = timed(monkeypatch, [3.0], 1.0)
    assert (best, device.calls) == (3.0, 1)


def test_switches_that_exclude_each_other_are_tolerated(monkeypatch):
    def refuse() -> str:
        raise RuntimeError("mix of the legacy and new APIs to set the TF32 precision")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", refuse)
    with probe._float32_matmul_precision("high") as changed:
        assert not changed
