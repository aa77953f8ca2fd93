"""What a prediction knows beyond the numbers that a measurement has too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bsprof.records.parts import Category, Phase, Regime
from bsprof.records.quantity import Quantity
from bsprof.records.workload import Scalar


class Place(StrEnum):
    """Where it lies: in the caching allocator, or outside it on the device."""

    ALLOCATOR = "allocator"
    OUTSIDE = "outside"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A named amount of memory that is not a tensor of the model.

    Attributes:
        name: `CUDA context`, `cuBLAS workspace`.
        bytes: With its interval.
        place: See `Place`.
        source: Where the number comes from.
    """

    name: str
    bytes: Quantity
    place: Place
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of the workload or of how it is run, and the memory it would need then.

    Attributes:
        name: As the middle of a sentence: `full activation checkpointing`.
        options: Of `bsprof sweep`, that make it: (`--activation-checkpointing`, `full`).
        micro_batch_size: The size that it was predicted for.
        device_used_bytes: Peak with the change.
        saved_bytes: How much less that is than without; below zero when it costs memory.
        fits: Whether that size fits then.
    """

    name: str
    options: tuple[str, ...]
    micro_batch_size: int
    device_used_bytes: Quantity
    saved_bytes: Quantity
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where a part of an update begins in a timeline.

    Attributes:
        sample: Index of its first sample in the timeline.
        phase: None between parts (dropping gradients, the next batch).
        micro_step: Which of the update, from 0; -1 outside micro-steps.
        backward: Whether it is the backward pass of its micro-step.
    """

    sample: int
    phase: Phase | None
    micro_step: int = -1
    backward: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Live bytes over the steady update in which the peak lies, sampled; no seconds in it.

    All tuples are equally long, at most a few hundred. A sample stands for the events up to the
    next one and is taken where most is live among them, so the peak is never lost.

    Attributes:
        positions: Allocations and frees since the update began, increasing.
        bytes_by_category: Live bytes of each category; one that never has any may be left out.
        reserved_bytes: What the allocator holds; empty when not followed.
        stages: Parts of the update, in order; the first begins at sample 0.
        peak: Index of the sample with most live bytes.
    """

    positions: tuple[int, ...]
    bytes_by_category: Mapping[Category, tuple[int, ...]]
    reserved_bytes: tuple[int, ...] = ()
    stages: tuple[Stage, ...] = ()
    peak: int = 0

    def __post_init__(self) -> None:
        count = len(self.positions)
        rows = [*self.bytes_by_category.values()]
        if self.reserved_bytes:
            rows.append(self.reserved_bytes)
        if any(len(row) != count for row in rows):
            raise ValueError(f"a timeline of {count} samples has a row of another length")
        places = [self.peak, *(stage.sample for stage in self.stages)]
        if count and not all(0 <= place < count for place in places):
            raise ValueError(f"a timeline of {count} samples has a peak or stage outside it")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWorlds:
    """Seconds in equally likely worlds, the same worlds at every size of a profile.

    In each of them what is uncertain (the laws of kernels, this machine, its host) has one value.
    Entry i of two sizes belongs to one world, so their difference shows what of the uncertainty
    does not cancel.

    Attributes:
        micro_step_s, optimizer_step_s: Seconds; empty where there is no such part.
        micro_step_sync_s: Empty with one rank.
    """

    micro_step_s: tuple[float, ...]
    micro_step_sync_s: tuple[float, ...] = ()
    optimizer_step_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyOperator:
    """Equal operators of a micro-step, put together.

    Attributes:
        name: `aten.mm`.
        work_class: Whose law their time follows.
        shape: In words.
        count: How many.
        seconds: Of the device, for all of them.
        flops, bytes: Of all of them.
        regime: What binds them.
    """

    name: str
    work_class: str
    shape: str
    count: int
    seconds: float
    flops: int
    bytes: int
    regime: Regime


@dataclass(frozen=True, slots=True, kw_only=True)
class PointPrediction:
    """How the numbers of one size came about.

    Attributes:
        top_modules: Bytes live at the allocated peak by the module that made them, the largest
            few; `""` is what no module made.
        module_groups: The same for modules that repeat each other, put together: those whose
            names differ in numbers alone are `blocks.*.mlp.up`.
        terms: Amounts that depend on the size (workspaces).
        timeline: None when it was not kept.
        worlds: Where times were predicted.
        seconds_by_class: Seconds of the device in a micro-step, by class of work.
        host_s: Seconds of the host to dispatch a micro-step; None where no time was predicted.
        heaviest: Operators that take most of a micro-step.
    """

    top_modules: Mapping[str, int] = field(default_factory=dict)
    module_groups: Mapping[str, int] = field(default_factory=dict)
    terms: tuple[Term, ...] = ()
    timeline: Timeline | None = None
    worlds: TimeWorlds | None = None
    seconds_by_class: Mapping[str, float] = field(default_factory=dict)
    host_s: float | None = None
    heaviest: tuple[HeavyOperator, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """How the numbers of a whole profile came about.

    Attributes:
        device: Name in the device catalogue: `rtx-4090`.
        software: Whose rules apply: `torch`, `cudnn`, `cuda`, each with its version, and what
            else decides (`allocator`: its configuration).
        terms: Amounts that are the same at every size (context, communication).
        changes: What would make a larger size, or the smallest one, fit.
        timing: Where the times come from, sentence by sentence; empty where there are none.
    """

    device: str
    software: Mapping[str, Scalar] = field(default_factory=dict)
    terms: tuple[Term, ...] = ()
    changes: tuple[Change, ...] = ()
    timing: tuple[str, ...] = ()
