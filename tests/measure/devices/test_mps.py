"""MPS over a stand-in for `torch.mps`: sampled peaks, limit, swapping."""

import time

import pytest

from bsprof.measure.classify import classify_exception
from bsprof.measure.devices.accelerator import SpilledMemory
from bsprof.measure.devices.mps import MpsDevice
from bsprof.records import PointStatus

GIB, MIB = 2**30, 2**20


class FakeMps:
    def __init__(self) -> None:
        self.allocated = self.driver = 0
        self.fraction = None
        self.emptied = 0

    def recommended_max_memory(self) -> int:
        return 16 * GIB

    def current_allocated_memory(self) -> int:
        return self.allocated

    def driver_allocated_memory(self) -> int:
        return self.driver

    def set_per_process_memory_fraction(self, fraction: float) -> None:
        self.fraction = fraction

    def synchronize(self) -> None:
        pass

    def empty_cache(self) -> None:
        self.emptied += 1
        self.driver = self.allocated


def test_a_peak_inside_the_block_is_sampled():
    fake = FakeMps()
    device = MpsDevice(module=fake)
    with device.watch(0) as watch:
        fake.allocated, fake.driver = 3 * GIB, 4 * GIB
        time.sleep(0.05)
        fake.allocated = GIB
    assert watch.allocated_bytes == 3 * GIB
    assert watch.device_used_bytes == 4 * GIB
    assert watch.reserved_bytes is None


def test_swapping_does_not_fit():
    fake = FakeMps()
    device = MpsDevice(module=fake)
    with pytest.raises(SpilledMemory, match="swaps") as raised, device.watch(0):
        fake.driver = 20 * GIB
    assert classify_exception(raised.value).status is PointStatus.OOM


def test_an_error_in_the_block_passes_through():
    device = MpsDevice(module=FakeMps())
    with pytest.raises(KeyError), device.watch(0):
        raise KeyError("mine")


def test_limit_and_snapshot():
    fake = FakeMps()
    device = MpsDevice(4 * GIB, module=fake)
    device.apply_limit()
    assert fake.fraction == 0.25
    snapshot = device.snapshot()
    assert (snapshot.kind, snapshot.capacity_bytes) == ("mps", 16 * GIB)
    assert (snapshot.usable_bytes, snapshot.limit_source) == (4 * GIB, "option")
    assert snapshot.other_bytes is None
    free = MpsDevice(module=fake).snapshot()
    assert (free.usable_bytes, free.limit_source) == (16 * GIB, "device")


def test_baseline_and_counters():
    fake = FakeMps()
    device = MpsDevice(module=fake)
    fake.allocated = GIB
    device.mark_baseline()
    fake.allocated += 32 * MIB
    assert device.baseline_reached()
    fake.allocated += 64 * MIB
    assert not device.baseline_reached()
    device.release()
    assert fake.emptied == 1
    assert device.device_used_now() == GIB + 96 * MIB
    assert device.alloc_retries() == 0
    assert device.energy_j() is None
    assert device.rss_peak() is None
    assert device.wait_for_release(10**15)
    assert "threads" in device.environment_settings()
    device.synchronize()
