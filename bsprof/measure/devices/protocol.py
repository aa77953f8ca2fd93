"""What measuring needs of a device. Nothing outside this folder asks torch about a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from bsprof.records import DeviceSnapshot, Scalar


class Watch(Protocol):
    """Byte peaks of one block; the attributes are valid once the block has ended."""

    @property
    def allocated_bytes(self) -> int:
        """Most bytes in live tensors at any moment of the block, residents included."""

    @property
    def reserved_bytes(self) -> int | None:
        """Most bytes the caching allocator held; None on a device without one."""

    @property
    def device_used_bytes(self) -> int:
        """Most bytes that counted against the limit: ours alone, not the neighbours'."""

    @property
    def heap_events(self) -> Sequence[tuple[int, int]]:
        """Allocations and frees on the C heap, address and signed bytes; empty elsewhere."""


class Device(Protocol):
    """A device as one worker process sees it. All sizes in bytes."""

    @property
    def kind(self) -> str:
        """`cpu`, `cuda`, `mps` or `xpu`."""

    @property
    def torch_device(self) -> str:
        """What `torch.device` takes: `cpu`, `cuda:1`."""

    def snapshot(self) -> DeviceSnapshot:
        """What the device says of itself now."""

    def apply_limit(self) -> None:
        """Makes going past the usable bytes fail at once instead of hurting others.

        CPU: RLIMIT_DATA. CUDA, XPU: the allocator's fraction. Cannot be undone: call it once, in
        a worker.
        """

    def synchronize(self) -> None:
        """Returns when everything queued on the device has run."""

    def release(self) -> None:
        """Gives back what is not in use: garbage, the allocator's cache, the heap's free top."""

    def watch(self, resident_bytes: int) -> AbstractContextManager[Watch]:
        """Watches the memory peaks of a block.

        Args:
            resident_bytes: Bytes in live tensors as the block begins (weights, gradients,
                optimizer state). The CPU has no counter of its own and starts from it; a device
                with an allocator that counts ignores it.
        """

    def alloc_retries(self) -> int:
        """Times so far that the allocator had to flush its cache to answer; 0 without one."""

    def energy_j(self) -> float | None:
        """Joules that the device took so far, from any start; None where nothing counts them."""

    def device_used_now(self) -> int:
        """Bytes that count against the limit now: ours alone."""

    def rss_peak(self) -> int | None:
        """Peak resident set of this process since the last `release`; None off the CPU."""

    def mark_baseline(self) -> None:
        """Remembers the present, cleaned-up state as what `baseline_reached` compares with."""

    def baseline_reached(self) -> bool:
        """Whether clean-up brought memory back to the marked baseline (call `release` first).

        A worker that does not return to it is replaced, so that no point inherits from another.
        """

    def wait_for_release(self, usable_bytes: int) -> bool:
        """Waits until this much is usable again after another worker's death; False: it is not.

        Call it in a fresh worker before anything is allocated. True at once on the CPU, whose
        memory is free before the death of its process is seen.
        """

    def environment_settings(self) -> Mapping[str, Scalar]:
        """Switches that change speed or memory here; a field that cannot be read is left out."""
