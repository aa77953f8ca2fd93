"""CUDA, XPU and MPS devices for one worker process, over the `Runtime` seam.

Guards what is known to go wrong on real devices: memory that the driver frees late after a kill,
neighbours on the device, peaks inherited from earlier points, spilling into host memory, and a
context that refuses everything after a sticky error.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch

from bsprof.measure.devices.nvml import Nvml, open_nvml
from bsprof.measure.devices.protocol import Device
from bsprof.measure.devices.runtime import Runtime, TorchRuntime
from bsprof.measure.devices.select import unavailable
from bsprof.records import DeviceSnapshot, Scalar

# A cuBLAS workspace is 32 MiB per handle and stream on recent devices and stays; one or two may
# first appear after the baseline was marked.
_BASELINE_SLACK_BYTES = 64 * 2**20
# How long the driver may take to free a killed process's memory before we stop waiting, and
# what a neighbour may have taken meanwhile. Heuristic.
_RELEASE_TIMEOUT_S = 30.0
_RELEASE_SLACK_SHARE = 0.01
_RELEASE_SLACK_BYTES = 2**30  # a context of our own, up to about that, is open by now
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0


class SpilledMemory(MemoryError):
    """More was in use than the device has: the driver moved part of it to host memory."""


@dataclass(slots=True)
class AcceleratorWatch:
    """Peaks of one watched block, in bytes; zeros until it ends."""

    allocated_bytes: int = 0
    reserved_bytes: int | None = 0
    device_used_bytes: int = 0
    heap_events: Sequence[tuple[int, int]] = ()


class AcceleratorDevice:
    """One CUDA or XPU device.

    What is not ours is what NVML reports before this process opens a context. Without NVML it is
    what is in use right after that, so that the context (some 0.5 GiB) counts as not ours both
    in the usable and in the used bytes.

    Args:
        runtime: The seam to torch.
        nvml: NVIDIA's management library; None where there is none.
        limit_bytes: The user's own limit on this process; None for none.
        sleep, clock: Replaced in tests.
    """

    def __init__(
        self,
        runtime: Runtime,
        nvml: Nvml | None,
        limit_bytes: int | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kind = runtime.kind
        self.torch_device = f"{runtime.kind}:{runtime.index}"
        self._runtime, self._nvml, self._limit_bytes = runtime, nvml, limit_bytes
        self._sleep, self._clock = sleep, clock
        self._properties = runtime.properties()
        self._others = self._used_before_context()
        free, self._capacity = runtime.memory_info()  # opens the context
        self._not_ours = self._capacity - free if self._others is None else self._others
        self._baseline = (0, 0)

    def snapshot(self) -> DeviceSnapshot:
        """Name, identity, memory as the runtime sees it, and what NVML adds."""
        facts = self._properties
        details: dict[str, Scalar] = {}
        if facts.capability is not None:
            details["capability"] = facts.capability
        if self._nvml is not None and facts.uuid is not None:
            details |= self._nvml.facts(facts.uuid)
        limited = self._limit_bytes is not None and self._limit_bytes < self._free_for_us()
        return DeviceSnapshot(
            kind=self.kind,
            index=self._runtime.index,
            name=facts.name,
            uuid=facts.uuid,
            capacity_bytes=self._capacity,
            usable_bytes=self._usable_bytes(),
            other_bytes=self._others,
            limit_source="option" if limited else "device",
            compute_units=facts.compute_units,
            details=details,
        )

    def apply_limit(self) -> None:
        """Sets the allocator's fraction so that with context and libraries the limit holds.

        Done without a limit of the user's too: where a driver would rather spill into host
        memory than refuse, the allocator refuses first.
        """
        outside = self.device_used_now() - self._statistic("reserved_bytes.all.current")
        allowed = self._usable_bytes() - max(outside, 0)
        self._runtime.set_fraction(min(max(allowed / self._capacity, 0.0), 1.0))

    def synchronize(self) -> None:
        """Waits for the device."""
        self._runtime.synchronize()

    def release(self) -> None:
        """Collects garbage, empties the cache and resets the peaks.

        After a sticky error the context refuses; that is not raised again, because the worker is
        replaced and its death frees everything.
        """
        gc.collect()
        with suppress(RuntimeError):
            self._runtime.synchronize()
            self._runtime.empty_cache()
            self._runtime.reset_peaks()

    @contextmanager
    def watch(self, resident_bytes: int) -> Iterator[AcceleratorWatch]:  # noqa: ARG002
        """Watches a block by the allocator's own counters; `resident_bytes` is not needed.

        Raises:
            SpilledMemory: the block used more than the device has.
        """
        watch = AcceleratorWatch()
        self._runtime.synchronize()
        self._runtime.reset_peaks()
        outside_before = self._outside_allocator()
        yield watch
        self._runtime.synchronize()
        watch.allocated_bytes = self._statistic("allocated_bytes.all.peak")
        watch.reserved_bytes = self._statistic("reserved_bytes.all.peak")
        # Context and libraries only grow within a block, so one end or the other is their peak.
        outside = max(outside_before, self._outside_allocator())
        watch.device_used_bytes = watch.reserved_bytes + outside
        if watch.reserved_bytes > self._capacity:
            raise SpilledMemory(
                f"{watch.reserved_bytes} bytes were reserved on a device of"
                f" {self._capacity} bytes: the driver spilled into host memory"
            )

    def alloc_retries(self) -> int:
        """Cache flushes so far."""
        return self._statistic("num_alloc_retries")

    def energy_j(self) -> float | None:
        """The board's joules by NVML; None without it."""
        uuid = self._properties.uuid
        if self._nvml is None or uuid is None:
            return None
        return self._nvml.energy_j(uuid)

    def device_used_now(self) -> int:
        """Bytes in use on the device less what is not ours."""
        free, total = self._runtime.memory_info()
        return max(total - free - self._not_ours, 0)

    def rss_peak(self) -> int | None:
        """None: host memory is not what limits here."""
        return None

    def mark_baseline(self) -> None:
        """Remembers allocated and reserved bytes of the cleaned-up process."""
        self._baseline = self._allocated_and_reserved()

    def baseline_reached(self) -> bool:
        """Whether allocated and reserved bytes are both within 64 MiB of the baseline."""
        return all(
            now <= before + _BASELINE_SLACK_BYTES
            for now, before in zip(self._allocated_and_reserved(), self._baseline, strict=True)
        )

    def wait_for_release(self, usable_bytes: int) -> bool:
        """Waits until the device has this much for us again; False after 30 s.

        A driver frees the memory of a killed process some time after its death. Call it in a
        fresh worker, before anything is allocated, with what the first worker found usable.
        """
        wanted = usable_bytes - max(_RELEASE_SLACK_BYTES, _RELEASE_SLACK_SHARE * usable_bytes)
        deadline, wait_s = self._clock() + _RELEASE_TIMEOUT_S, _FIRST_WAIT_S
        while True:
            # The context is open already, so what is in use holds ours as well as theirs.
            free, total = self._runtime.memory_info()
            used = total - free
            self._not_ours = min(self._not_ours, used)
            if self._others is not None:
                self._others = min(self._others, used)
            if self._usable_bytes() >= wanted:
                return True
            if self._clock() >= deadline:
                return False
            self._sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def environment_settings(self) -> Mapping[str, Scalar]:
        """Switches of torch and of the device's libraries."""
        return self._runtime.settings()

    def _used_before_context(self) -> int | None:
        uuid = self._properties.uuid
        if self._nvml is None or uuid is None:
            return None
        return self._nvml.used_bytes(uuid, self._properties.total_bytes)

    def _free_for_us(self) -> int:
        return max(self._capacity - self._not_ours, 0)

    def _usable_bytes(self) -> int:
        free = self._free_for_us()
        return free if self._limit_bytes is None else min(free, self._limit_bytes)

    def _outside_allocator(self) -> int:
        """Bytes of ours that the allocator does not know: context, libraries, NCCL."""
        return max(self.device_used_now() - self._statistic("reserved_bytes.all.current"), 0)

    def _allocated_and_reserved(self) -> tuple[int, int]:
        return (
            self._statistic("allocated_bytes.all.current"),
            self._statistic("reserved_bytes.all.current"),
        )

    def _statistic(self, name: str) -> int:
        """One counter; 0 where this backend does not keep it."""
        return int(self._runtime.statistics().get(name, 0))


def open_accelerator(kind: str, index: int | None, limit_bytes: int | None) -> Device:
    """Opens an accelerator in this process.

    Raises:
        DeviceUnavailable: this machine, or its torch build, has no such device.
    """
    count = visible_count(kind)
    if count == 0 or (index or 0) >= count:
        raise unavailable(kind, index, count)
    if kind == "mps":
        from bsprof.measure.devices.mps import MpsDevice

        return MpsDevice(limit_bytes)
    nvml = open_nvml() if kind == "cuda" and torch.version.hip is None else None
    return AcceleratorDevice(TorchRuntime(kind, index or 0), nvml, limit_bytes)


def visible_count(kind: str) -> int:
    """How many devices of a kind torch can use here."""
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    if kind == "cuda":
        return torch.cuda.device_count() if torch.cuda.is_available() else 0
    return torch.xpu.device_count() if torch.xpu.is_available() else 0
