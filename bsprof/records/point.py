"""One micro-batch size with its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bsprof.records.parts import Category, Phase, Regime
from bsprof.records.prediction import PointPrediction
from bsprof.records.quantity import Quantity


class PointStatus(StrEnum):
    """How a point ended. Out of memory is information, not an error.

    `oom`: an allocator refused. `killed`: the kernel's out-of-memory killer or another SIGKILL.
    `timeout`: no heartbeat within a phase's limit. `crashed`: the process died otherwise.
    `failed`: the workload raised something that is not about memory. `not_memory_limit`: a grid,
    index or resource limit that is not memory. `skipped`: known not to fit, or over budget.
    """

    OK = "ok"
    OOM = "oom"
    KILLED = "killed"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    FAILED = "failed"
    NOT_MEMORY_LIMIT = "not_memory_limit"
    SKIPPED = "skipped"

    @property
    def is_too_big(self) -> bool:
        """Whether this outcome says that the size needs more memory than there is."""
        return self in (PointStatus.OOM, PointStatus.KILLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Raw samples, in seconds; medians and rates are derived from them.

    On a CPU `micro_step_samples_s` is `clocked_samples_s` times the sweep's usual pace over
    `pace_samples_s`, so that sizes measured at different moments compare.

    Attributes:
        micro_step_samples_s: One per timed block: block time over micro-steps in the block.
        optimizer_step_samples_s: One per timed optimizer step; empty in inference.
        micro_step_sync_samples_s: Micro-steps that synchronise gradients; empty for one rank.
        enqueue_samples_s: Host seconds per micro-step until the last operator was queued.
        race_samples_s: Micro-steps taken in turn with other sizes: entry i of every point that
            has them belongs to the same round, so differences of entry i are paired.
        clocked_samples_s: Micro-steps as the clock showed them, before the machine's drifting
            speed was taken out; empty where nothing was taken out.
        pace_samples_s: Seconds of a fixed piece of work beside each of them: the drift.
        block_steps: Micro-steps between two synchronisations.
        warmup_steps: Micro-steps run and thrown away before the first sample.
    """

    micro_step_samples_s: tuple[float, ...]
    optimizer_step_samples_s: tuple[float, ...] = ()
    micro_step_sync_samples_s: tuple[float, ...] = ()
    enqueue_samples_s: tuple[float, ...] = ()
    race_samples_s: tuple[float, ...] = ()
    clocked_samples_s: tuple[float, ...] = ()
    pace_samples_s: tuple[float, ...] = ()
    block_steps: int = 1
    warmup_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPeaks:
    """Byte peaks by phase, all from updates in which optimizer state existed.

    Attributes:
        resident_bytes: Live between two updates: weights, optimizer state, buffers, and
            gradients where `zero_grad` keeps them.
        allocated_by_phase_bytes: Peak of live tensor bytes in each phase.
        device_used_by_phase_bytes: Peak of what counts against the limit in each phase (CPU:
            the process's data segment; CUDA: context + reserved + libraries).
        first_step_allocated_bytes: Peak of the very first update (lazy state, autotuning).
        rss_bytes: Peak resident set of the process; None off the CPU.
        baseline_device_used_bytes: What counts against the limit before the first micro-step.
        updates: Whole updates behind these peaks.
    """

    resident_bytes: int
    allocated_by_phase_bytes: Mapping[Phase, int]
    device_used_by_phase_bytes: Mapping[Phase, int]
    first_step_allocated_bytes: int | None = None
    rss_bytes: int | None = None
    baseline_device_used_bytes: int | None = None
    updates: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a point has no numbers.

    Attributes:
        reason: One sentence.
        phase: What the worker was doing (`start`, `build`, `compile`, `step`, ...).
        error_type: Class name of the exception; None for a death without one.
        location: `file.py:12` in the user's own code; None when there is none.
        tail: Last lines of the traceback or of what the script wrote.
        exit_status: Exit status of the worker, negative for a signal; None when it survived.
        requested_bytes: Bytes of the request that was refused; None when unknown.
    """

    reason: str
    phase: str
    error_type: str | None = None
    location: str | None = None
    tail: tuple[str, ...] = ()
    exit_status: int | None = None
    requested_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One micro-batch size on one device, with its outcome.

    Quantities carry a 90 % interval and are None where the point failed or the device has no
    such notion. `samples_per_s` is micro_batch_size / (micro-step + optimizer step), that is
    with accumulation 1; in inference micro_batch_size / forward. `flops` (model FLOPs),
    `bytes_moved` and `kernels` (operators that do work on the device) are per micro-step.
    `alloc_retries` above 0 means "fits only after a cache flush": such a point is never
    recommended. Raises `ValueError` for a size below one.

    Attributes:
        observed_micro_batch_size: Samples really run, read back from the batch.
        micro_steps_run: Micro-steps that really ran; 0 makes a measured point invalid.
        confirmed: Whether this size was run again in a fresh process and fitted.
        prediction: How predicted numbers came about; None where they were measured.
    """

    micro_batch_size: int
    status: PointStatus
    micro_step_s: Quantity | None = None
    micro_step_sync_s: Quantity | None = None
    optimizer_step_s: Quantity | None = None
    peak_allocated_bytes: Quantity | None = None
    peak_reserved_bytes: Quantity | None = None
    device_used_bytes: Quantity | None = None
    first_step_peak_reserved_bytes: Quantity | None = None
    alloc_retries: int | None = None
    flops: Quantity | None = None
    bytes_moved: Quantity | None = None
    kernels: Quantity | None = None
    arithmetic_intensity: Quantity | None = None
    samples_per_s: Quantity | None = None
    mfu: Quantity | None = None
    hfu: Quantity | None = None
    regime: Regime = Regime.UNKNOWN
    peak_phase: Phase | None = None
    peak_by_category_bytes: Mapping[Category, int] = field(default_factory=dict)
    compile_s: Quantity | None = None
    energy_j: Quantity | None = None
    confirmed: bool = False
    observed_micro_batch_size: int | None = None
    micro_steps_run: int = 0
    timing: Timing | None = None
    memory: MemoryPeaks | None = None
    failure: Failure | None = None
    prediction: PointPrediction | None = None

    def __post_init__(self) -> None:
        if self.micro_batch_size < 1:
            raise ValueError(f"a micro-batch has at least one sample, not {self.micro_batch_size}")

    @property
    def is_ok(self) -> bool:
        """Whether the size ran and may be recommended (fits without a cache flush)."""
        return self.status is PointStatus.OK and not self.alloc_retries
