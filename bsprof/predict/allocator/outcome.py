"""What a replay found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from bsprof.predict.stream import Mark
from bsprof.records import Category, Phase

STEADY_FROM = 1
"""First update in which optimizer state exists."""


class Verdict(StrEnum):
    """Whether a run fits: without a cache flush, only with one, or not."""

    FITS = "fits"
    FITS_AFTER_FLUSH = "fits_after_flush"
    OUT_OF_MEMORY = "out_of_memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPeaks:
    """Peaks of one part of the run, from one mark to the next.

    What is there when the part begins counts, as after `reset_peak_memory_stats`.

    Attributes:
        update, micro_step, phase: As in its mark; -1, -1 and None before the first.
        allocated_bytes, reserved_bytes: Peaks.
        begin_allocated_bytes: Allocated when it begins.
        alloc_retries: Cache flushes in it.
    """

    update: int
    micro_step: int
    phase: Phase | None
    allocated_bytes: int
    reserved_bytes: int
    begin_allocated_bytes: int
    alloc_retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakOwner:
    """Who holds the memory at the steady allocated peak.

    Attributes:
        position: Number of events of the stream done when it is reached.
        mark: The part of the run it lies in; None before the first mark.
        operator: Index of the last operator at or before it; None if there is none.
        module: Name of the module that made the allocation which reaches the peak; of an
            insertion, its name.
        allocated_bytes: The peak.
        by_category: Bytes of blocks (rounded, as allocated counts them) by whose they are; they
            add up to `allocated_bytes`.
        by_module: The same by module or insertion name, largest first.
    """

    position: int
    mark: Mark | None
    operator: int | None
    module: str
    allocated_bytes: int
    by_category: Mapping[Category, int]
    by_module: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The request that found no memory.

    Attributes:
        position: Number of events of the stream done before it.
        mark: The part of the run it lies in; None before the first mark.
        module: Module that asked; the name of an insertion.
        category: Whose bytes it would have been.
        requested_bytes: As asked.
        free_bytes: What the driver had left.
        allocated_bytes, reserved_bytes: At that moment, after the flush.
    """

    position: int
    mark: Mark | None
    module: str
    category: Category
    requested_bytes: int
    free_bytes: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Allocated bytes of the update with the peak, stacked by category, thinned out.

    Attributes:
        update: Which.
        positions: Number of events of the stream done.
        by_category: Bytes of blocks at each position.
        reserved_bytes: At each position.
        marks: Parts of the update.
    """

    update: int
    positions: tuple[int, ...]
    by_category: Mapping[Category, tuple[int, ...]]
    reserved_bytes: tuple[int, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A stream replayed through the allocator, up to its end or to the refusal.

    Attributes:
        verdict: Of the whole run.
        capacity_bytes: What the allocator could have; None: no limit.
        parts: Peaks by part, in order, as far as it went.
        alloc_retries: Cache flushes because the driver refused.
        peak: Owner of the steady allocated peak; of the whole run where no steady update is
            reached.
        refusal: None unless out of memory.
        timeline: On request.
        inactive_split_bytes: Free bytes in segments partly in use, when the replay ended.
    """

    verdict: Verdict
    capacity_bytes: int | None
    parts: tuple[PartPeaks, ...]
    alloc_retries: int
    peak: PeakOwner
    refusal: Refusal | None = None
    timeline: Timeline | None = None
    inactive_split_bytes: int = 0

    @property
    def steady_parts(self) -> tuple[PartPeaks, ...]:
        """Parts of updates in which optimizer state exists; of the last one reached if none."""
        first = first_steady(tuple(part.update for part in self.parts))
        return tuple(part for part in self.parts if part.update >= first)

    @property
    def peak_allocated_bytes(self) -> int:
        """Of the whole run."""
        return max(part.allocated_bytes for part in self.parts)

    @property
    def peak_reserved_bytes(self) -> int:
        """Of the whole run."""
        return max(part.reserved_bytes for part in self.parts)

    @property
    def steady_allocated_bytes(self) -> int:
        """Peak of the steady updates."""
        return max(part.allocated_bytes for part in self.steady_parts)

    @property
    def steady_reserved_bytes(self) -> int:
        """Peak of the steady updates; what was reserved before them and kept counts."""
        return max(part.reserved_bytes for part in self.steady_parts)

    @property
    def first_update_allocated_bytes(self) -> int:
        """Peak of update 0, which makes optimizer state; 0 where it is not reached."""
        return self._of_update(0)[0]

    @property
    def first_update_reserved_bytes(self) -> int:
        """Reserved peak of update 0."""
        return self._of_update(0)[1]

    @property
    def resident_bytes(self) -> int:
        """Allocated where the first steady update begins: weights, state, kept gradients."""
        return self.steady_parts[0].begin_allocated_bytes

    def allocated_by_phase(self) -> dict[Phase, int]:
        """Steady allocated peak of each phase."""
        return self._by_phase("allocated_bytes")

    def reserved_by_phase(self) -> dict[Phase, int]:
        """Steady reserved peak of each phase."""
        return self._by_phase("reserved_bytes")

    def by_update(self) -> dict[int, tuple[int, int]]:
        """Allocated and reserved peak of each update; -1 is what comes before the first."""
        updates = dict.fromkeys(part.update for part in self.parts)
        return {update: self._of_update(update) for update in updates}

    def _by_phase(self, field: str) -> dict[Phase, int]:
        peaks: dict[Phase, int] = {}
        for part in self.steady_parts:
            if part.phase is not None:
                value: int = getattr(part, field)
                peaks[part.phase] = max(peaks.get(part.phase, 0), value)
        return peaks

    def _of_update(self, update: int) -> tuple[int, int]:
        parts = [part for part in self.parts if part.update == update]
        return (
            max((part.allocated_bytes for part in parts), default=0),
            max((part.reserved_bytes for part in parts), default=0),
        )


def first_steady(updates: tuple[int, ...]) -> int:
    """First update that counts as steady among those reached."""
    last = max(updates, default=-1)
    return min(last, STEADY_FROM)
