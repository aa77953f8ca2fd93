"""What a worker is asked and what it found, as it travels over the wire: plain records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bsprof.measure.heap import HeapTrace
from bsprof.records import Category, MemoryPeaks, Note, Quantity, Timing


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
class EnergyWindow:
    """What the device took while whole updates (accumulation of one) ran one after the other.

    Attributes:
        joules: Difference of the device's counter, which others' work raises as well.
        seconds: From one reading of it to the other.
        updates: Whole updates in between.
    """

    joules: float
    seconds: float
    updates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RawPoint:
    """What one size's measurement found; the parent derives a `Point` from it.

    Attributes:
        resident_by_category_bytes: Weights and optimizer state between two updates.
        gradient_bytes: All gradients, when they exist.
        heap: The steady update's allocations on the C heap; None off the CPU.
        inherits_heap: Whether a larger size ran in the same process before: the C heap never
            shrinks below a live block, so this size's data segment is the larger one's.
        compile_s: Seconds of the first micro-step beyond a later one; None without compiling.
        energy: None where the device does not count it.
        notes: What could not be done as asked.
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
    heap: HeapTrace | None = None
    inherits_heap: bool = False
    compile_s: float | None = None
    energy: EnergyWindow | None = None
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to do at one size.

    Attributes:
        relative_error: Wanted half width of the time's interval over the median.
        seconds: Limit on timed sampling; 0 times nothing: no time is better than a rough one.
    """

    relative_error: float = 0.02
    seconds: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderTiming:
    """What was seen of a loader.

    Attributes:
        batch_size: Samples in most batches.
        samples_per_s: The rate, the beginning of further epochs included.
        first_batch_s: Seconds from the start of the first epoch to its first batch.
        restarts: Epochs that began within the timed batches.
        epoch_batches: Batches of the first epoch; None where it did not end.
    """

    batch_size: int
    samples_per_s: Quantity
    first_batch_s: float
    restarts: int
    epoch_batches: int | None
