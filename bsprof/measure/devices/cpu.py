"""The CPU as a device: its memory limit, and the peaks of live tensors and of the data segment.

Imported in workers only. Linux is the system this is exact on; elsewhere the data segment is
unknown and the resident set stands in for it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import re
import resource
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from bsprof.measure import host
from bsprof.measure.devices import settings
from bsprof.measure.devices.allocations import AllocationRecorder, peak_of_changes
from bsprof.records import DeviceSnapshot, Scalar

# The sampler reads one small file; at 0.5 ms it costs the step about 1 % of one core and sees
# any buffer that lives for a millisecond. Heuristic.
_SAMPLE_EVERY_S = 0.0005
# What a clean worker may hold above its baseline: caches of libraries, and where only the data
# segment is known, freed blocks that glibc keeps and a stack of 8 MiB for each new thread.
_BASELINE_SLACK_BYTES = 64 * 2**20
_BASELINE_SLACK_SHARE = 0.02


@dataclass(slots=True)
class CpuWatch:
    """Peaks of one watched block, in bytes; zeros until it ends."""

    allocated_bytes: int = 0
    reserved_bytes: int | None = None
    device_used_bytes: int = 0
    heap_events: Sequence[tuple[int, int]] = ()


class CpuDevice:
    """The processor and main memory, for one worker process.

    Args:
        limit_bytes: The user's own limit on this process; None for none.
        proc, cgroup_root: Where kernel files are read from.
    """

    kind = "cpu"
    torch_device = "cpu"

    def __init__(
        self,
        limit_bytes: int | None = None,
        *,
        proc: Path = host.PROC,
        cgroup_root: Path = host.CGROUP_ROOT,
    ) -> None:
        self._proc = proc
        self._memory = host.host_memory(limit_bytes, proc=proc, cgroup_root=cgroup_root)
        self._baseline = 0

    def snapshot(self) -> DeviceSnapshot:
        """The processor's name, its threads, and the memory this process may use."""
        memory = self._memory
        details = settings.read_fields(
            {
                "cpu_capability": torch.backends.cpu.get_cpu_capability,
                "machine": platform.machine,
                "available_bytes": lambda: memory.available_bytes,
            }
        )
        return DeviceSnapshot(
            kind=self.kind,
            name=processor_name(self._proc),
            capacity_bytes=memory.capacity_bytes,
            usable_bytes=memory.usable_bytes,
            other_bytes=memory.other_bytes,
            limit_source=memory.limit_source,
            threads=torch.get_num_threads(),
            compute_units=_usable_cores(),
            details=details,
        )

    def apply_limit(self) -> None:
        """Sets the soft RLIMIT_DATA to the usable bytes (a hard limit below it stays)."""
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = self._memory.usable_bytes
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def synchronize(self) -> None:
        """Nothing to wait for: operators return when they are done."""

    def release(self) -> None:
        """Collects garbage, hands the heap's free top back, and lets the RSS peak start anew."""
        gc.collect()
        _trim_heap()
        # Some containers refuse this; then the peak is that of the whole process.
        with suppress(OSError):
            (self._proc / "self" / "clear_refs").write_text("5", encoding="ascii")

    @contextmanager
    def watch(self, resident_bytes: int) -> Iterator[CpuWatch]:
        """Watches a block: live bytes by the allocator's own events, data segment by sampling."""
        watch = CpuWatch()
        with _DataSampler(self._proc) as sampler, AllocationRecorder() as recorder:
            yield watch
        # Not reached when the block raised: then there is no peak to tell.
        watch.heap_events = recorder.events
        watch.allocated_bytes = resident_bytes + peak_of_changes(recorder.changes)
        watch.device_used_bytes = sampler.peak_bytes

    def alloc_retries(self) -> int:
        """Always 0: the CPU allocator keeps no cache that it could flush."""
        return 0

    def energy_j(self) -> float | None:
        """None: nothing that every user may read counts a processor's energy."""
        return None

    def device_used_now(self) -> int:
        """Bytes of the data segment now, the number RLIMIT_DATA is compared with."""
        memory = host.process_memory(proc=self._proc)
        return memory.data_bytes or _peak_rss_bytes()

    def rss_peak(self) -> int | None:
        """Peak resident set of this process in bytes since the last `release`."""
        return host.process_memory(proc=self._proc).peak_rss_bytes or _peak_rss_bytes()

    def mark_baseline(self) -> None:
        """Remembers what the cleaned-up process holds."""
        self._baseline = self._held_bytes()

    def baseline_reached(self) -> bool:
        """Whether what is held is back within 64 MiB or 2 % of the limit of the baseline."""
        slack = max(_BASELINE_SLACK_BYTES, int(_BASELINE_SLACK_SHARE * self._memory.usable_bytes))
        return self._held_bytes() <= self._baseline + slack

    def _held_bytes(self) -> int:
        """Bytes in live blocks of the C heap; the data segment where malloc does not tell.

        The data segment itself is no sign of a leak: glibc keeps freed blocks below a live one.
        """
        live = _live_heap_bytes()
        return self.device_used_now() if live is None else live

    def wait_for_release(self, usable_bytes: int) -> bool:  # noqa: ARG002
        """True: the kernel frees a process's memory before its death is seen."""
        return True

    def environment_settings(self) -> Mapping[str, Scalar]:
        """Threads, precision switches and relevant environment variables."""
        return settings.common_settings()


def processor_name(proc: Path = host.PROC) -> str:
    """The processor's model name as the kernel reports it, else the machine type."""
    try:
        text = (proc / "cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^(?:model name|Model|Hardware|cpu model)\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


class _DataSampler:
    """Samples the data segment on a thread; `peak_bytes` is valid after the block.

    Where the block sets a new record for the whole process, the kernel's own high-water mark of
    all mappings gives the exact peak, whatever the samples missed.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._before = host.process_memory(proc=proc)
        self._highest = 0
        self.peak_bytes = 0

    def __enter__(self) -> _DataSampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        after = host.process_memory(proc=self._proc)
        self.peak_bytes = max(self._before.data_bytes, after.data_bytes, self._highest)
        if after.peak_size_bytes > self._before.peak_size_bytes:
            other_mappings = after.size_bytes - after.data_bytes
            self.peak_bytes = max(self.peak_bytes, after.peak_size_bytes - other_mappings)
        if not self.peak_bytes:
            self.peak_bytes = _peak_rss_bytes()

    def _sample(self) -> None:
        try:
            descriptor = os.open(self._proc / "self" / "statm", os.O_RDONLY)
        except OSError:
            return
        page = resource.getpagesize()
        # statm counts the main stack as data, RLIMIT_DATA does not.
        stack = _statm_data(descriptor) * page - self._before.data_bytes
        while not self._ended.wait(_SAMPLE_EVERY_S):
            self._highest = max(self._highest, _statm_data(descriptor) * page - stack)
        os.close(descriptor)


def _statm_data(descriptor: int) -> int:
    """Pages in field 6 of statm: data plus stack."""
    return int(os.pread(descriptor, 256, 0).split()[5])


def _trim_heap() -> None:
    """`malloc_trim(0)` where the C library has it (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33 and later, malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def _live_heap_bytes() -> int | None:
    """Bytes in blocks that malloc has handed out and not got back; None without `mallinfo2`."""
    read = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if read is None:
        return None
    read.restype = _MallocInfo
    info = read()
    return int(info.uordblks) + int(info.hblkhd)


def _peak_rss_bytes() -> int:
    """Peak resident set by POSIX: kB on Linux, bytes on macOS."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _usable_cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()
