"""The question of a recommendation and its answer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from bsprof.records.parts import Regime
from bsprof.records.profile import Note
from bsprof.records.quantity import Quantity

PLAN_SCHEMA_VERSION = 1
"""Version of the recommendation document. History: 1, the first (0.1.0)."""

DEFAULT_HEADROOM = 0.05
"""Share of the usable memory that a recommended size leaves free, where nothing else was asked."""


class Objective(StrEnum):
    """What the best plan minimises."""

    TIME = "time"
    MEMORY = "memory"
    COST = "cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the training run needs.

    Attributes:
        target_batch: Samples per optimizer step over all ranks.
        target_tokens: The same in tokens, when it was asked in tokens; `target_batch` is then
            tokens over tokens per sample.
        world_size: Data-parallel ranks.
        headroom_share: Share of usable memory to leave free, 0 to 1.
        headroom_bytes: Bytes to leave free instead; None uses the share.
        tolerance: How far the effective batch may be off, 0 to 1; 0 is exact.
        objective: See `Objective`.
    """

    target_batch: int
    target_tokens: int | None = None
    world_size: int = 1
    headroom_share: float = 0.05
    headroom_bytes: int | None = None
    tolerance: float = 0.0
    objective: Objective = Objective.TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceRun:
    """`count` pieces of `size` samples, one after the other."""

    size: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPieces:
    """What each of `ranks` ranks runs per update: the pieces of `runs`, in order."""

    ranks: int = 1
    runs: tuple[PieceRun, ...]

    @classmethod
    def of(cls, sizes: Iterable[int], ranks: int = 1) -> RankPieces:
        """From the sizes one by one: `of((64, 64, 16))` is two runs."""
        return cls(
            ranks=ranks,
            runs=tuple(
                PieceRun(size=size, count=sum(1 for _ in run))
                for size, run in itertools.groupby(sizes)
            ),
        )

    @property
    def steps(self) -> int:
        """Pieces of one rank."""
        return sum(run.count for run in self.runs)

    @property
    def samples(self) -> int:
        """Samples of one rank."""
        return sum(run.size * run.count for run in self.runs)

    @property
    def sizes(self) -> frozenset[int]:
        """The different sizes among the pieces."""
        return frozenset(run.size for run in self.runs)

    def expanded(self) -> tuple[int, ...]:
        """The sizes one by one; with small micro-batches these are very many."""
        return tuple(itertools.chain.from_iterable((run.size,) * run.count for run in self.runs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """How a data set divides into updates.

    Attributes:
        dataset_size: Samples of an epoch.
        effective_batch_size: Samples of an update.
        whole_updates: Updates with all their samples.
        left_samples: Samples that are over.
        last_pieces: How the last, partial update can be run: its pieces by rank, each with weight
            n / left_samples. Empty where nothing is over, or too little to give each rank one.
        epochs: Epochs of the schedule.
        warmup_share: Part of the schedule, 0 to 1; None where none was asked for.
    """

    dataset_size: int
    effective_batch_size: int
    whole_updates: int
    left_samples: int
    last_pieces: tuple[RankPieces, ...] = ()
    epochs: int = 1
    warmup_share: float | None = None

    @property
    def updates_with_last(self) -> int:
        """Optimizer steps of an epoch that runs what is over as one smaller update."""
        return self.whole_updates + (1 if self.last_pieces else 0)

    @property
    def schedule_updates(self) -> int:
        """Optimizer steps of all epochs, dropping what is over."""
        return self.epochs * self.whole_updates

    @property
    def carried_updates(self) -> int:
        """Optimizer steps of all epochs where what is over goes into the next epoch's first."""
        return self.epochs * self.dataset_size // self.effective_batch_size

    @property
    def warmup_updates(self) -> int | None:
        """Optimizer steps of warm-up."""
        if self.warmup_share is None:
            return None
        return math.ceil(self.warmup_share * self.schedule_updates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One way to run the target.

    Attributes:
        micro_batch_size: The largest piece; the measured (or interpolated) size.
        accumulation_steps: Micro-steps per rank and update.
        pieces: What the ranks run, those with the same pieces together, first ranks first. A
            piece of n samples has weight n / effective_batch_size.
        effective_batch_size: Sum of all pieces.
        step_time_s: Seconds of an update; None where only memory is known.
        samples_per_s: effective_batch_size / step_time_s, all ranks; None without a time.
        device_used_bytes: Peak that counts against the limit; None when unknown.
        headroom_bytes: usable less the upper end of the peak; None when unknown.
        confirmed: Whether the size was run again in a fresh process.
        interpolated: Whether its numbers come from a fit between measured sizes.
        energy_j: Joules of an update over all ranks; None when unknown.
    """

    micro_batch_size: int
    accumulation_steps: int
    pieces: tuple[RankPieces, ...]
    effective_batch_size: int
    step_time_s: Quantity | None = None
    samples_per_s: Quantity | None = None
    device_used_bytes: Quantity | None = None
    headroom_bytes: int | None = None
    confirmed: bool = False
    interpolated: bool = False
    regime: Regime = Regime.UNKNOWN
    energy_j: Quantity | None = None

    @property
    def pieces_by_rank(self) -> tuple[tuple[int, ...], ...]:
        """For each rank the sizes it runs, in order."""
        return tuple(
            itertools.chain.from_iterable((kind.expanded(),) * kind.ranks for kind in self.pieces)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A plan that was considered and not chosen.

    Attributes:
        plan: What it would be.
        slower_by: step_time_s over the chosen plan's, less 1, with the paired 90 % interval; None
            without times.
        reason: Why it was not chosen, one sentence.
    """

    plan: Plan
    slower_by: Quantity | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The chosen plan, the reasons, and what it beat.

    Attributes:
        reasons: Plain sentences that say why, most important first.
        knee: See `TimeFit`; None when the curve does not show one.
        advice: What to change and to mind when training with the plan.
        epoch: Updates of an epoch; None where the size of the data set is not known.
        profile: Name of the profile the answer was read from.
    """

    target: Target
    plan: Plan
    reasons: tuple[str, ...]
    knee: Quantity | None = None
    alternatives: tuple[Alternative, ...] = ()
    advice: tuple[Note, ...] = ()
    notes: tuple[Note, ...] = ()
    profile: str = ""
    epoch: Epoch | None = None
