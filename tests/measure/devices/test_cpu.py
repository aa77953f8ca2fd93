"""The CPU's watch against a known pattern, its limit for real, its baseline."""

import resource
import subprocess
import sys
import textwrap
import time

import pytest
import torch

from bsprof.measure import host
from bsprof.measure.devices.allocations import AllocationRecorder, peak_of_changes
from bsprof.measure.devices.cpu import CpuDevice, processor_name
from bsprof.records import DeviceSnapshot

linux = pytest.mark.skipif(sys.platform != "linux", reason="the data segment is Linux's")
MB = 10**6
MIB = 2**20


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8)


def test_peak_of_changes():
    assert peak_of_changes([]) == 0
    assert peak_of_changes([-5, 3]) == 0
    assert peak_of_changes([10, 5, -10, 7]) == 15
    assert peak_of_changes([10, -10, 4, 8, -12]) == 12


def test_every_allocation_and_free_is_recorded_in_order():
    with AllocationRecorder() as earlier:
        held = block(3 * MB)
    assert earlier.changes == [3 * MB]
    with AllocationRecorder() as recorder:
        first = block(10 * MB)
        second = block(5 * MB)
        del first
        third = block(7 * MB)
        del second, third, held
    assert recorder.changes == [
        10 * MB, 5 * MB, -10 * MB, 7 * MB, -5 * MB, -7 * MB, -3 * MB,
    ]  # fmt: skip


def test_the_watch_knows_the_peak_to_the_byte():
    device = CpuDevice()
    with device.watch(resident_bytes=100) as watch:
        first = block(10 * MB)
        second = block(5 * MB)
        del first
        del second
        last = block(7 * MB)
    assert watch.allocated_bytes == 100 + 15 * MB
    assert watch.reserved_bytes is None
    del last


def test_the_watch_sees_buffers_inside_kernels():
    """A convolution in float64 unfolds its input: no Python hook sees that buffer."""
    device = CpuDevice()
    images = torch.randn(4, 8, 32, 32, dtype=torch.float64)
    weight = torch.randn(8, 8, 3, 3, dtype=torch.float64)
    with device.watch(0) as watch, torch.no_grad():
        output = torch.nn.functional.conv2d(images, weight, padding=1)
    unfolded = images.nbytes * 9
    assert output.nbytes + unfolded <= watch.allocated_bytes <= output.nbytes + 2 * unfolded


def test_what_backward_allocates_is_seen():
    device = CpuDevice()
    weight = torch.zeros(MB, requires_grad=True)
    with device.watch(weight.nbytes) as watch:
        (weight * 2).sum().backward()
    assert weight.grad is not None
    assert watch.allocated_bytes >= weight.nbytes + weight.grad.nbytes


def test_a_block_that_no_recorder_saw_is_missing_from_the_frees(capfd):
    earlier = block(3 * MB)
    with AllocationRecorder() as recorder:
        del earlier
        later = block(2 * MB)
    assert recorder.changes[-1] == 2 * MB
    assert -3 * MB not in recorder.changes
    capfd.readouterr()  # torch says so itself
    del later


def test_a_failing_block_raises_its_own_error_and_the_next_watch_works():
    device = CpuDevice()
    with pytest.raises(ZeroDivisionError), device.watch(0):
        _ = 1 / 0
    with device.watch(0) as watch:
        kept = block(2 * MB)
    assert watch.allocated_bytes == 2 * MB
    del kept


@linux
def test_the_data_segment_peak_follows_a_large_buffer():
    device = CpuDevice()
    before = device.device_used_now()
    with device.watch(0) as watch:
        held = torch.ones(64 * MIB, dtype=torch.uint8)
        time.sleep(0.02)  # several sampling periods
        del held
    grown = watch.device_used_bytes - before
    assert 64 * MIB <= grown <= 64 * MIB + 24 * MIB  # the sampler's own stack is 8 MiB


@linux
def test_a_short_record_is_exact_although_no_sample_saw_it():
    device = CpuDevice()
    # More than this process ever mapped, so that the kernel's high-water mark must move.
    memory = host.process_memory()
    size = memory.peak_size_bytes - memory.size_bytes + 256 * MIB
    before = device.device_used_now()
    with device.watch(0) as watch:
        del_at_once = block(size)  # never touched: no time passes
        del del_at_once
    assert size <= watch.device_used_bytes - before <= size + 24 * MIB


def test_the_overhead_of_a_watch_is_small():
    device = CpuDevice()
    with device.watch(0):
        pass
    spent = []
    for _ in range(7):
        start = time.perf_counter()
        with device.watch(0):
            pass
        spent.append(time.perf_counter() - start)
    assert min(spent) < 0.02


def test_the_profiler_is_silent():
    script = textwrap.dedent("""
        from bsprof.measure.devices.select import open_device
        device = open_device("cpu")
        with device.watch(0):
            pass
    """)
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert child.stdout == ""
    assert child.stderr == ""


@linux
def test_the_limit_refuses_for_real_and_the_snapshot_names_it():
    script = textwrap.dedent("""
        import resource, torch
        from bsprof.measure.classify import classify_exception
        from bsprof.measure.devices.select import open_device
        device = open_device("cpu", 2**30)
        device.apply_limit()
        print(device.snapshot().usable_bytes, device.snapshot().limit_source)
        print(resource.getrlimit(resource.RLIMIT_DATA)[0])
        try:
            torch.empty(2**30, dtype=torch.uint8)
        except RuntimeError as error:
            print(classify_exception(error).status)
        torch.empty(2**28, dtype=torch.uint8)
        print("smaller fits")
    """)
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert child.stdout.splitlines() == [f"{2**30} option", str(2**30), "oom", "smaller fits"]


def test_a_hard_limit_is_never_raised(monkeypatch):
    seen = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (10**9, 2 * 10**9))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, pair: seen.append(pair))
    device = CpuDevice(10**12)
    device._memory = host.HostMemory(
        capacity_bytes=10**12,
        available_bytes=10**12,
        usable_bytes=10**12,
        other_bytes=0,
        limit_source="option",
    )
    device.apply_limit()
    assert seen == [(2 * 10**9, 2 * 10**9)]


@linux
def test_baseline_is_missed_while_something_is_held_and_reached_after():
    device = CpuDevice(3 * 2**30)
    device.release()
    device.mark_baseline()
    assert device.baseline_reached()
    held = torch.ones(200 * MIB, dtype=torch.uint8)
    assert not device.baseline_reached()
    del held
    device.release()
    assert device.baseline_reached()


@linux
def test_resident_peak_starts_anew_after_release():
    device = CpuDevice()
    held = torch.ones(300 * MIB, dtype=torch.uint8)
    high = device.rss_peak()
    del held
    device.release()
    low = device.rss_peak()
    assert high is not None
    assert low is not None
    assert low <= high
    if low == high:
        pytest.skip("this system does not let a process reset its high-water mark")
    assert high - low > 200 * MIB


def test_snapshot_and_settings():
    device = CpuDevice()
    snapshot = device.snapshot()
    assert isinstance(snapshot, DeviceSnapshot)
    assert (snapshot.kind, snapshot.index, snapshot.uuid) == ("cpu", 0, None)
    assert snapshot.threads == torch.get_num_threads()
    assert snapshot.compute_units
    assert 0 < snapshot.usable_bytes <= snapshot.capacity_bytes
    assert device.environment_settings()["threads"] == torch.get_num_threads()
    assert device.alloc_retries() == 0
    assert device.energy_j() is None
    assert device.wait_for_release(10**15)
    device.synchronize()


def test_processor_name(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Fast Processor 9000  \n")
    assert processor_name(tmp_path) == "Fast Processor 9000"
    assert processor_name(tmp_path / "absent")
