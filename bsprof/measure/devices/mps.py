"""Apple's GPU: unified memory, an allocator without peak counters, so peaks are sampled."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from bsprof.measure.devices.accelerator import AcceleratorWatch, SpilledMemory
from bsprof.measure.devices.settings import common_settings
from bsprof.records import DeviceSnapshot, Scalar

_SAMPLE_EVERY_S = 0.0005
_BASELINE_SLACK_BYTES = 64 * 2**20


class MpsDevice:
    """The MPS device of this machine.

    Peaks are sampled every half millisecond and are therefore lower bounds; past the recommended
    working set macOS swaps instead of refusing, so that counts as not fitting.

    Args:
        limit_bytes: The user's own limit on this process; None for none.
        module: `torch.mps`, or a stand-in.
    """

    kind = "mps"
    torch_device = "mps"

    def __init__(self, limit_bytes: int | None = None, module: Any = torch.mps) -> None:
        self._module = module
        self._recommended = int(module.recommended_max_memory())
        self._limit_bytes = limit_bytes
        self._baseline = 0

    def snapshot(self) -> DeviceSnapshot:
        """The recommended working set as capacity; others' use is not known."""
        limited = self._limit_bytes is not None and self._limit_bytes < self._recommended
        return DeviceSnapshot(
            kind=self.kind,
            name="Apple MPS",
            capacity_bytes=self._recommended,
            usable_bytes=self._usable_bytes(),
            limit_source="option" if limited else "device",
        )

    def apply_limit(self) -> None:
        """Sets the allocator's fraction of the recommended working set."""
        self._module.set_per_process_memory_fraction(self._usable_bytes() / self._recommended)

    def synchronize(self) -> None:
        """Waits for the device."""
        self._module.synchronize()

    def release(self) -> None:
        """Collects garbage and empties the allocator's cache."""
        gc.collect()
        self._module.empty_cache()

    @contextmanager
    def watch(self, resident_bytes: int) -> Iterator[AcceleratorWatch]:  # noqa: ARG002
        """Watches a block by sampling the allocator; `resident_bytes` is not needed.

        Raises:
            SpilledMemory: the block used more than the recommended working set.
        """
        watch = AcceleratorWatch(reserved_bytes=None)
        ended = threading.Event()
        thread = threading.Thread(target=self._sample, args=(watch, ended), daemon=True)
        self._module.synchronize()
        self._look(watch)
        thread.start()
        try:
            yield watch
            self._module.synchronize()
        finally:
            ended.set()
            thread.join()
        self._look(watch)
        if watch.device_used_bytes > self._recommended:
            raise SpilledMemory(
                f"{watch.device_used_bytes} bytes were in use where {self._recommended} bytes"
                " are recommended: the system swaps"
            )

    def alloc_retries(self) -> int:
        """Always 0: the allocator does not tell."""
        return 0

    def energy_j(self) -> float | None:
        """None: nothing that every user may read counts it."""
        return None

    def device_used_now(self) -> int:
        """Bytes that the driver holds for this process now."""
        return int(self._module.driver_allocated_memory())

    def rss_peak(self) -> int | None:
        """None: the driver's count is what limits here."""
        return None

    def mark_baseline(self) -> None:
        """Remembers the live bytes of the cleaned-up process."""
        self._baseline = int(self._module.current_allocated_memory())

    def baseline_reached(self) -> bool:
        """Whether live bytes are within 64 MiB of the baseline."""
        now = int(self._module.current_allocated_memory())
        return now <= self._baseline + _BASELINE_SLACK_BYTES

    def wait_for_release(self, usable_bytes: int) -> bool:  # noqa: ARG002
        """True: the recommended working set does not depend on others."""
        return True

    def environment_settings(self) -> Mapping[str, Scalar]:
        """Threads and relevant environment variables."""
        return common_settings()

    def _usable_bytes(self) -> int:
        return min(self._recommended, self._limit_bytes or self._recommended)

    def _look(self, watch: AcceleratorWatch) -> None:
        allocated = int(self._module.current_allocated_memory())
        used = int(self._module.driver_allocated_memory())
        watch.allocated_bytes = max(watch.allocated_bytes, allocated)
        watch.device_used_bytes = max(watch.device_used_bytes, used)

    def _sample(self, watch: AcceleratorWatch, ended: threading.Event) -> None:
        while not ended.wait(_SAMPLE_EVERY_S):
            self._look(watch)
