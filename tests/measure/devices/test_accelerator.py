"""Accelerators over a fake runtime: neighbours, late release, inherited peaks, limits, spilling."""

import dataclasses

import pytest
import torch

from bsprof.errors import DeviceUnavailable
from bsprof.measure.classify import classify_exception
from bsprof.measure.devices import accelerator
from bsprof.measure.devices.accelerator import (
    AcceleratorDevice,
    SpilledMemory,
    open_accelerator,
)
from bsprof.measure.devices.runtime import Properties, TorchRuntime, cuda_settings
from bsprof.measure.devices.settings import read_fields, relevant_variables
from bsprof.records import PointStatus

GIB, MIB = 2**30, 2**20
CONTEXT = 500 * MIB


@dataclasses.dataclass
class FakeRuntime:
    """A device with memory, neighbours and a caching allocator, in numbers only."""

    kind: str = "cuda"
    index: int = 1
    total: int = 80 * GIB
    neighbours: int = 0
    context: int = 0
    libraries: int = 0
    allocated: int = 0
    reserved: int = 0
    allocated_peak: int = 0
    reserved_peak: int = 0
    retries: int = 0
    fraction: float | None = None
    broken: bool = False
    unlimited: bool = False
    released_at: tuple[float, int] | None = None
    now: float = 0.0

    def properties(self) -> Properties:
        return Properties(
            name="Fake H200",
            total_bytes=self.total,
            uuid="1234-abcd",
            compute_units=132,
            capability="9.0",
        )

    def memory_info(self) -> tuple[int, int]:
        self.context = CONTEXT
        if self.released_at is not None and self.now >= self.released_at[0]:
            self.neighbours, self.released_at = self.released_at[1], None
        used = self.neighbours + self.context + self.libraries + self.reserved
        return max(self.total - used, 0), self.total

    def statistics(self) -> dict[str, int]:
        return {
            "allocated_bytes.all.current": self.allocated,
            "allocated_bytes.all.peak": self.allocated_peak,
            "reserved_bytes.all.current": self.reserved,
            "reserved_bytes.all.peak": self.reserved_peak,
            "num_alloc_retries": self.retries,
        }

    def reset_peaks(self) -> None:
        self.allocated_peak, self.reserved_peak = self.allocated, self.reserved

    def empty_cache(self) -> None:
        self.reserved = self.allocated

    def set_fraction(self, fraction: float) -> None:
        self.fraction = fraction

    def synchronize(self) -> None:
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def settings(self) -> dict[str, object]:
        return {"cudnn_benchmark": False}

    def allocate(self, size: int, *, reserve: int | None = None) -> None:
        self.allocated += size
        self.reserved = max(self.reserved, self.allocated if reserve is None else reserve)
        self.allocated_peak = max(self.allocated_peak, self.allocated)
        self.reserved_peak = max(self.reserved_peak, self.reserved)

    def free(self, size: int) -> None:
        self.allocated -= size


class FakeNvml:
    """Reports the neighbours' use; a context that is open counts as used as well."""

    def __init__(self, runtime: FakeRuntime, used: int | None = -1) -> None:
        self.runtime, self.used = runtime, used

    def used_bytes(self, uuid: str, capacity_bytes: int) -> int | None:
        assert uuid == "1234-abcd"
        assert capacity_bytes == self.runtime.total
        if self.used != -1:
            return self.used
        return self.runtime.neighbours + self.runtime.context + self.runtime.reserved

    def energy_j(self, _uuid: str) -> float | None:
        return 1234.5

    def facts(self, _uuid: str) -> dict[str, object]:
        return {"driver": "570.1"}


def opened(runtime: FakeRuntime, limit: int | None = None, *, nvml: bool = True, **options):
    return AcceleratorDevice(runtime, FakeNvml(runtime) if nvml else None, limit, **options)


def test_snapshot_with_neighbours_known():
    snapshot = opened(FakeRuntime(neighbours=10 * GIB)).snapshot()
    assert (snapshot.kind, snapshot.index, snapshot.name) == ("cuda", 1, "Fake H200")
    assert snapshot.uuid == "1234-abcd"
    assert snapshot.capacity_bytes == 80 * GIB
    assert snapshot.other_bytes == 10 * GIB
    assert snapshot.usable_bytes == 70 * GIB  # the context comes out of what is ours
    assert snapshot.limit_source == "device"
    assert snapshot.compute_units == 132
    assert snapshot.details == {"capability": "9.0", "driver": "570.1"}


def test_snapshot_without_nvml_counts_the_context_as_not_ours():
    device = opened(FakeRuntime(neighbours=10 * GIB), nvml=False)
    snapshot = device.snapshot()
    assert snapshot.other_bytes is None
    assert snapshot.usable_bytes == 70 * GIB - CONTEXT
    assert device.device_used_now() == 0


def test_nvml_that_does_not_know_the_device_is_as_none():
    runtime = FakeRuntime(neighbours=GIB)
    device = AcceleratorDevice(runtime, FakeNvml(runtime, used=None))
    assert device.snapshot().other_bytes is None


def test_the_option_limits_and_is_named():
    snapshot = opened(FakeRuntime(), 20 * GIB).snapshot()
    assert (snapshot.usable_bytes, snapshot.limit_source) == (20 * GIB, "option")
    beyond = opened(FakeRuntime(neighbours=70 * GIB), 20 * GIB).snapshot()
    assert (beyond.usable_bytes, beyond.limit_source) == (10 * GIB, "device")


def test_the_limit_is_the_allocator_s_fraction_less_what_lies_outside_it():
    runtime = FakeRuntime()
    opened(runtime, 20 * GIB).apply_limit()
    assert runtime.fraction == pytest.approx((20 * GIB - CONTEXT) / (80 * GIB))


def test_the_fraction_stays_between_zero_and_one():
    runtime = FakeRuntime()
    opened(runtime, 1 * MIB).apply_limit()
    assert runtime.fraction == 0.0


def test_watch_peaks_are_of_this_block_alone():
    runtime = FakeRuntime(neighbours=2 * GIB)
    device = opened(runtime)
    runtime.allocate(30 * GIB)
    runtime.free(29 * GIB)
    device.release()
    with device.watch(0) as watch:
        runtime.allocate(4 * GIB, reserve=6 * GIB)
        runtime.free(4 * GIB)
        runtime.libraries = 100 * MIB
    assert watch.allocated_bytes == 5 * GIB
    assert watch.reserved_bytes == 6 * GIB
    assert watch.device_used_bytes == 6 * GIB + CONTEXT + 100 * MIB


def test_neighbours_never_count_as_ours():
    runtime = FakeRuntime(neighbours=30 * GIB)
    device = opened(runtime)
    with device.watch(0) as watch:
        runtime.allocate(GIB)
    assert watch.device_used_bytes == GIB + CONTEXT


def test_without_nvml_used_and_usable_leave_out_the_same():
    runtime = FakeRuntime(neighbours=30 * GIB)
    device = opened(runtime, nvml=False)
    with device.watch(0) as watch:
        runtime.allocate(50 * GIB - CONTEXT)
    assert watch.device_used_bytes == device.snapshot().usable_bytes


def test_spilled_memory_does_not_fit():
    runtime = FakeRuntime(total=16 * GIB)
    device = opened(runtime)
    with pytest.raises(SpilledMemory, match="spilled into host memory") as raised, device.watch(0):
        runtime.allocate(30 * GIB)
    assert classify_exception(raised.value).status is PointStatus.OOM


def test_an_error_in_the_block_passes_through_untouched():
    runtime = FakeRuntime()
    device = opened(runtime)

    def poison_and_raise() -> None:
        runtime.broken = True
        raise KeyError("mine")

    with pytest.raises(KeyError), device.watch(0):
        poison_and_raise()


def test_release_survives_a_poisoned_context():
    runtime = FakeRuntime()
    device = opened(runtime)
    runtime.broken = True
    device.release()
    with pytest.raises(RuntimeError, match="illegal memory access"):
        device.synchronize()


def test_release_empties_the_cache_and_resets_the_peaks():
    runtime = FakeRuntime()
    device = opened(runtime)
    runtime.allocate(4 * GIB)
    runtime.free(3 * GIB)
    device.release()
    assert (runtime.reserved, runtime.reserved_peak, runtime.allocated_peak) == (GIB, GIB, GIB)


def test_baseline():
    runtime = FakeRuntime()
    device = opened(runtime)
    runtime.allocate(GIB)
    device.mark_baseline()
    runtime.allocate(32 * MIB)  # a cuBLAS workspace that appears late
    assert device.baseline_reached()
    runtime.allocate(64 * MIB)
    assert not device.baseline_reached()
    runtime.free(64 * MIB)
    assert not device.baseline_reached()  # a fragment still holds the segment
    device.release()
    assert device.baseline_reached()


def test_counters():
    runtime = FakeRuntime(retries=3)
    device = opened(runtime)
    runtime.allocate(GIB)
    assert device.alloc_retries() == 3
    assert device.device_used_now() == GIB + CONTEXT
    assert device.energy_j() == 1234.5
    assert opened(runtime, nvml=False).energy_j() is None
    assert device.rss_peak() is None
    assert device.environment_settings() == {"cudnn_benchmark": False}
    assert device.torch_device == "cuda:1"


class Clock:
    """Time that only sleeping moves; the runtime sees it."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self.runtime = runtime
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.runtime.now += seconds

    def __call__(self) -> float:
        return self.runtime.now


@pytest.mark.parametrize("nvml", [True, False])
def test_memory_that_is_freed_late_is_waited_for(nvml):
    """A killed worker's 60 GiB are still there when the next one opens the device."""
    runtime = FakeRuntime(neighbours=65 * GIB, released_at=(1.5, 5 * GIB))
    clock = Clock(runtime)
    device = opened(runtime, nvml=nvml, sleep=clock.sleep, clock=clock)
    assert device.snapshot().usable_bytes < 16 * GIB
    assert device.wait_for_release(75 * GIB - CONTEXT)
    assert device.snapshot().usable_bytes == pytest.approx(75 * GIB, rel=0.01)
    assert 1.5 <= runtime.now < 4
    assert clock.waits == sorted(clock.waits)  # backs off


def test_memory_that_never_comes_back_ends_the_wait():
    runtime = FakeRuntime(neighbours=65 * GIB)
    clock = Clock(runtime)
    device = opened(runtime, sleep=clock.sleep, clock=clock)
    assert not device.wait_for_release(75 * GIB)
    assert 30 <= runtime.now < 35
    assert len(clock.waits) < 30


def test_nothing_to_wait_for():
    runtime = FakeRuntime()
    clock = Clock(runtime)
    device = opened(runtime, 10 * GIB, sleep=clock.sleep, clock=clock)
    assert device.wait_for_release(10 * GIB)
    assert clock.waits == []


def test_open_accelerator_counts_devices(monkeypatch):
    monkeypatch.setattr(accelerator, "visible_count", lambda _kind: 2)
    monkeypatch.setattr(accelerator, "open_nvml", lambda: None)
    monkeypatch.setattr(
        accelerator, "TorchRuntime", lambda kind, index: FakeRuntime(kind=kind, index=index)
    )
    assert open_accelerator("cuda", None, None).torch_device == "cuda:0"
    assert open_accelerator("xpu", 1, None).torch_device == "xpu:1"
    with pytest.raises(DeviceUnavailable, match="cuda:2"):
        open_accelerator("cuda", 2, None)


def test_visible_count_without_accelerators(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.xpu, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert [accelerator.visible_count(kind) for kind in ("cuda", "xpu", "mps")] == [0, 0, 0]


def test_torch_runtime_tolerates_missing_fields(monkeypatch):
    class Bare:
        name = "Old Card"
        total_memory = 8 * GIB

    runtime = TorchRuntime("cuda", 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _index: Bare())
    assert runtime.properties() == Properties(name="Old Card", total_bytes=8 * GIB)

    class Full(Bare):
        uuid = "GPU-77"
        multi_processor_count = 108
        major, minor = 8, 0

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _index: Full())
    assert runtime.properties() == Properties(
        name="Old Card", total_bytes=8 * GIB, uuid="77", compute_units=108, capability="8.0"
    )


def test_one_switch_that_refuses_leaves_the_others():
    def refuse() -> bool:
        raise RuntimeError("mix of the legacy and new APIs to set the TF32 precision")

    fields = read_fields({"old": refuse, "new": lambda: "tf32", "gone": lambda: torch.no_such})
    assert fields == {"new": "tf32"}


def test_cuda_settings_without_cuda():
    settings = cuda_settings()
    assert settings["cudnn_benchmark"] is False
    assert "sdp_math" in settings


def test_cuda_settings_after_the_new_tf32_switch_was_set():
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert cuda_settings()["matmul_fp32_precision"] == "tf32"
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_relevant_variables():
    found = relevant_variables(
        {"OMP_NUM_THREADS": "2", "HOME": "/x", "PYTORCH_CUDA_ALLOC_CONF": "a:b", "LD_PRELOAD": "j"}
    )
    assert found == {"LD_PRELOAD": "j", "OMP_NUM_THREADS": "2", "PYTORCH_CUDA_ALLOC_CONF": "a:b"}
    assert list(found) == sorted(found)
