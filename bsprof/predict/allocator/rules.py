"""The constants and options of torch's caching allocator, by generation of torch.

Read in `c10/cuda/CUDACachingAllocator.cpp` (pytorch/pytorch at 001074d) and, for constants and
options, in `c10/core/AllocatorConfig.h` and `c10/cuda/CUDAAllocatorConfig.h` of torch 2.13 and
2.14. The constants have been the same since torch 1.10; what changed is which options exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bsprof.errors import UsageError
from bsprof.predict.allocator.options import (
    Settings,
    chosen_setting,
    read_settings,
)
from bsprof.predict.target import Software

MIN_BLOCK_BYTES = 512
"""Rounding unit, and the smallest block (`kMinBlockSize`)."""
SMALL_BYTES = 1 << 20
"""Largest request of the small pool (`kSmallSize`)."""
SMALL_SEGMENT_BYTES = 2 << 20
"""Segment of the small pool (`kSmallBuffer`)."""
LARGE_SEGMENT_BYTES = 20 << 20
"""Segment for larger requests under `MIN_LARGE_BYTES` (`kLargeBuffer`), unless an option says."""
MIN_LARGE_BYTES = 10 << 20
"""From here on a request gets a segment of its own size (`kMinLargeAlloc`)."""
ROUND_LARGE_BYTES = 2 << 20
"""What the size of such a segment is rounded up to (`kRoundLarge`)."""
DRIVER_PAGE_BYTES = 2 << 20
"""Granularity in which the driver hands out device memory."""

_FIRST_INTERVAL = SMALL_BYTES.bit_length()
"""Sizes under 2 MiB use the first entry of a list of divisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorRules:
    """How requests become blocks and segments.

    Attributes:
        torch: Major and minor version whose rules these are.
        large_segment_bytes: Segment for requests over 1 and under 10 MiB; page of expandable
            segments of the large pool.
        divisions: Steps between powers of two that sizes are rounded up to, for sizes under
            2 MiB, under 4 MiB, and so on; 0 and 1 are off. Empty: off throughout.
        max_split_bytes: Blocks from this size on are never split; None: no limit.
        max_non_split_rounding_bytes: How much larger such a block may be than the request.
        garbage_collection_threshold: Share of the allowed memory beyond which old blocks are
            dropped before the driver is asked; None: never. Acts only with `memory_fraction`.
        memory_fraction: Share of the whole device this process may reserve; None: not limited.
        expandable_segments: Whether segments grow page by page.
        notes: What was set and changes nothing here, or is set twice.
    """

    torch: tuple[int, int] = (2, 13)
    large_segment_bytes: int = LARGE_SEGMENT_BYTES
    divisions: tuple[int, ...] = ()
    max_split_bytes: int | None = None
    max_non_split_rounding_bytes: int = LARGE_SEGMENT_BYTES
    garbage_collection_threshold: float | None = None
    memory_fraction: float | None = None
    expandable_segments: bool = False
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, software: Software, conf: str | None = None) -> AllocatorRules:
        """Rules of a generation under a setting as in `PYTORCH_CUDA_ALLOC_CONF`.

        Raises:
            UsageError: An option that this generation does not have, a value that it refuses, or
                another allocator (`backend:cudaMallocAsync`).
        """
        return cls._of(software, read_settings(conf or "", software.torch), ())

    @classmethod
    def from_environment(cls, software: Software, environment: Mapping[str, str]) -> AllocatorRules:
        """Rules that a process with these environment variables would follow.

        Raises:
            UsageError: As `of`; and `PYTORCH_NO_CUDA_MEMORY_CACHING`, which bypasses the
                allocator.
        """
        conf, notes = chosen_setting(environment, software.torch)
        return cls._of(software, read_settings(conf, software.torch), notes)

    @classmethod
    def _of(cls, software: Software, settings: Settings, notes: tuple[str, ...]) -> AllocatorRules:
        if software.torch < (1, 10):
            raise UsageError(
                f"cannot follow the allocator of torch {software.torch[0]}.{software.torch[1]}",
                found="its rules are known from torch 1.10 on",
            )
        large = settings.large_segment_bytes or LARGE_SEGMENT_BYTES
        return cls(
            torch=software.torch,
            large_segment_bytes=large,
            divisions=settings.divisions,
            max_split_bytes=settings.max_split_bytes,
            max_non_split_rounding_bytes=settings.max_non_split_rounding_bytes or large,
            garbage_collection_threshold=settings.garbage_collection_threshold,
            memory_fraction=settings.memory_fraction,
            expandable_segments=settings.expandable_segments,
            notes=notes + settings.notes,
        )

    def block_bytes(self, requested_bytes: int) -> int:
        """Bytes of the block that is looked for: the request rounded up.

        It may be served by a larger block whose rest is not worth splitting off.
        """
        if requested_bytes < MIN_BLOCK_BYTES:
            return MIN_BLOCK_BYTES
        if self.divisions:
            interval = requested_bytes.bit_length() - _FIRST_INTERVAL
            division = self.divisions[min(max(interval, 0), len(self.divisions) - 1)]
            if division > 1 and requested_bytes > MIN_BLOCK_BYTES * division:
                return _next_division(requested_bytes, division)
        return (requested_bytes + MIN_BLOCK_BYTES - 1) & -MIN_BLOCK_BYTES

    def segment_bytes(self, block_bytes: int) -> int:
        """Bytes asked of the driver for a block of this size, without expandable segments."""
        if block_bytes <= SMALL_BYTES:
            return SMALL_SEGMENT_BYTES
        if block_bytes < MIN_LARGE_BYTES:
            return self.large_segment_bytes
        return (block_bytes + ROUND_LARGE_BYTES - 1) & -ROUND_LARGE_BYTES


def _next_division(size: int, divisions: int) -> int:
    """`size` rounded up to the next of `divisions` steps between two powers of two."""
    floor = 1 << (size.bit_length() - 1)
    if size == floor:
        return size
    step = floor // divisions
    if step == 0:
        return floor * 2
    return (size + step - 1) // step * step
