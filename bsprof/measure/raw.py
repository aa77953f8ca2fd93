"""What a worker found, as it travels over the wire: records like those of a profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bsprof.records import Category, MemoryPeaks, Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What `accounting` counted in one micro-step and one optimizer step at this size."""

    micro_batch_size: int
    model_flops: int
    hardware_flops: int
    bytes_moved: int
    kernels: int
    peak_by_category_bytes: Mapping[Category, int]
    uncounted_operators: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RawPoint:
    """What one size's measurement found; the parent derives a `Point` from it.

    Attributes:
        resident_by_category_bytes: Weights and optimizer state between two updates.
        gradient_bytes: All gradients, when they exist.
        compile_s: Seconds of the first micro-step beyond a later one; None without compiling.
    """

    micro_batch_size: int
    observed_micro_batch_size: int
    micro_steps_run: int
    memory: MemoryPeaks
    reserved_bytes: int | None
    first_step_reserved_bytes: int | None
    alloc_retries: int
    timing: Timing
    resident_by_category_bytes: Mapping[Category, int]
    gradient_bytes: int
    counts: Counts | None = None
    compile_s: float | None = None
