"""What is compared: a published row as settings to predict under, and the number it is held to."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from bsprof.predict.target import Protocol, Software
from bsprof.records import WorkloadSpec


class Kind(StrEnum):
    """Which of three quantities a source read; they are never compared with one another."""

    ALLOCATED = "allocated"
    RESERVED = "reserved"
    DEVICE = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A published peak.

    Attributes:
        kind: What was read.
        bytes: How much.
    """

    kind: Kind
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """Sizes between which the largest one lies.

    Attributes:
        fits: Ran; 0 when no size is known to.
        fails: The next one tried, which ran out of memory; None when none was tried.
        capacity_bytes: Of the device in question, as its owner reports it; None is the catalogue's.
    """

    fits: int
    fails: int | None
    capacity_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row that can be predicted.

    Attributes:
        row: Where it stands: file and line.
        source: Whose it is.
        family: Kind of model, for the tables.
        model: As published.
        spec: What to predict for it.
        device: Name in the device catalogue.
        micro_batch: Samples of a micro-step.
        software: Generation of software whose rules apply.
        protocol: How the source's loop is put together.
        measured: A published peak; None for a bracket alone.
        bracket: None for a peak alone. A row labelled out of memory is one that fits at 0.
        resident_bytes: What the source held besides all through the run (data on the device).
        whole_run: Whether the peak includes the first update, with what autotuning takes.
        allocator_conf: As in `PYTORCH_CUDA_ALLOC_CONF`.
        assumptions: What the source does not state, and was taken to be.
    """

    row: str
    source: str
    family: str
    model: str
    spec: WorkloadSpec
    device: str
    micro_batch: int
    software: Software = field(default_factory=Software)
    protocol: Protocol = field(default_factory=Protocol)
    measured: Measured | None = None
    bracket: Bracket | None = None
    resident_bytes: int = 0
    whole_run: bool = False
    allocator_conf: str | None = None
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A row that is not predicted.

    Attributes:
        reason: Why; rows with the same reason are told together.
        counts: Whether it counts against the share of rows that are scored: not what was never
            measured, was not a training run, or stands among the rows not to be judged.
    """

    row: str
    source: str
    model: str
    reason: str
    counts: bool = True
