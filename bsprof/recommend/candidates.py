"""Every way to run the target that the profile supports, one per micro-batch size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bsprof.fit.samples import TIE_SHARE
from bsprof.recommend.curve import Cost, Curve
from bsprof.recommend.pieces import equal_pieces, exact_pieces
from bsprof.records import Quantity, RankPieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to run the target.

    Attributes:
        micro_batch_size: The largest piece.
        pieces: What the ranks run, the larger shares first.
        effective_batch_size: Sum of all pieces.
        cost: Seconds of an update on the slowest rank, as coefficients; empty where no time is
            known.
        step_time_s: The same as a number; None where no time is known.
        used_bytes: Memory of its pieces; None when unknown.
        ceiling_bytes: Upper end of memory over all sizes up to this one; 0 when unknown.
        interpolated: Whether the largest piece was not measured itself.
        shapes: Different piece sizes, over all ranks.
    """

    micro_batch_size: int
    pieces: tuple[RankPieces, ...]
    effective_batch_size: int
    cost: Cost
    step_time_s: Quantity | None
    used_bytes: Quantity | None
    ceiling_bytes: float
    interpolated: bool
    shapes: int

    @property
    def accumulation_steps(self) -> int:
        """Micro-steps per update on the rank that has the most."""
        return self.pieces[0].steps

    @property
    def effort(self) -> tuple[float, int, int]:
        """What is kept small where no time is known: micro-steps per sample, shapes, the size."""
        steps = self.accumulation_steps / self.effective_batch_size
        return steps, self.shapes, self.micro_batch_size

    @property
    def seconds_per_sample(self) -> float:
        """Expected seconds of an update over its samples: comparable between near misses."""
        assert self.step_time_s is not None, "sizes without times are chosen by their steps"
        return self.step_time_s.value / self.effective_batch_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Splitting:
    """How a target is split.

    Attributes:
        curve: Times, memory and safety of every size.
        target_batch: Samples per update; None where each size is its own target (inference).
        world_size: Data-parallel ranks.
        tolerance: How far the sum of equal pieces may be off the target, 0 to 1.
        avoid_single: Whether a last piece of one sample is avoided (batch normalisation).
        with_sync: Whether an update synchronises gradients between ranks.
        prefer_one_shape: Whether a second piece size costs extra (compile, autotuning).
        limit_bytes: Memory that may be used. Where no time is known, the largest size below it is
            looked for between the sizes of the curve.
    """

    curve: Curve
    target_batch: int | None
    world_size: int = 1
    tolerance: float = 0.0
    avoid_single: bool = False
    with_sync: bool = False
    prefer_one_shape: bool = False
    limit_bytes: float = math.inf

    @property
    def largest_share(self) -> int | None:
        """Samples of the rank that has the most; no micro-batch is larger."""
        if self.target_batch is None:
            return None
        return -(-self.target_batch // self.world_size)

    def candidates(self) -> tuple[Candidate, ...]:
        """All candidates, one per micro-batch size, smallest first."""
        found: dict[int, Candidate] = {}
        for size in (*self.curve.sizes, *self._sizes_between(), *self._at_limit()):
            if self.largest_share is not None and size > self.largest_share:
                continue
            candidate = self._candidate(size)
            if candidate is None:
                continue
            known = found.get(candidate.micro_batch_size)
            if known is None or self._is_better(candidate, known):
                found[candidate.micro_batch_size] = candidate
        return tuple(found[size] for size in sorted(found))

    def _is_better(self, candidate: Candidate, known: Candidate) -> bool:
        """Whether it is the better of two ways to run one size."""
        if not self.curve.is_timed:
            return candidate.effort < known.effort
        return candidate.seconds_per_sample < known.seconds_per_sample

    def excess(self, a: Candidate, b: Candidate) -> Quantity:
        """How much longer a takes than b per sample, as a share of b (paired)."""
        scale = b.effective_batch_size / a.effective_batch_size
        return self.curve.excess(a.cost, b.cost, scale)

    def _sizes_between(self) -> Iterator[int]:
        """At most one size between each two neighbours: the largest that splits evenly.

        Such a size needs fewer micro-steps than the smaller neighbour, without a last piece.
        """
        target = self.target_batch
        if target is None:
            return
        for below, above in itertools.pairwise(self.curve.sizes):
            for size in range(above - 1, below, -1):
                even = target % (size * self.world_size) == 0 or size == self.largest_share
                if even and self.curve.is_safe(size):
                    yield size
                    break

    def _at_limit(self) -> Iterator[int]:
        """Where no time is known: the least size with as few pieces as the largest that fits."""
        share = self.largest_share
        if self.curve.is_timed or share is None:
            return
        largest = self.curve.largest_within(self.limit_bytes)
        if largest is not None:
            steps = -(-share // largest)
            size = -(-share // steps)
            if self.curve.is_safe(size):
                yield size

    def _candidate(self, size: int) -> Candidate | None:
        if self.target_batch is None:
            return self._built((RankPieces.of((size,), ranks=self.world_size),))

        def allowed(piece: int) -> bool:
            single = self.avoid_single and piece == 1 and size > 1
            return not single and self.curve.is_safe(piece)

        exact = self._built(exact_pieces(self.target_batch, self.world_size, size, allowed))
        if self.tolerance == 0:
            return exact
        near = self._built(equal_pieces(self.target_batch, self.world_size, size, self.tolerance))
        if exact is None or near is None:
            return exact or near
        if not self.curve.is_timed:
            return min((exact, near), key=lambda c: c.effort)
        gain = self.excess(exact, near).value
        spares_a_shape = self.prefer_one_shape and exact.shapes > 1 and gain >= 0
        return near if gain > TIE_SHARE or spares_a_shape else exact

    def _built(self, pieces: tuple[RankPieces, ...] | None) -> Candidate | None:
        if pieces is None:
            return None
        sizes = frozenset[int]().union(*(kind.sizes for kind in pieces))
        size = max(sizes)
        point = self.curve.points.get(size)
        if point is None and not self.curve.is_between(size):
            return None  # below the smallest measured size nothing is recommended
        cost, step_time = self._time(pieces)
        return Candidate(
            micro_batch_size=size,
            pieces=pieces,
            effective_batch_size=sum(kind.ranks * kind.samples for kind in pieces),
            cost=cost,
            step_time_s=step_time,
            used_bytes=self._used(sizes),
            ceiling_bytes=self.curve.ceiling_bytes(size),
            interpolated=point is None,
            shapes=len(sizes),
        )

    def _time(self, pieces: tuple[RankPieces, ...]) -> tuple[Cost, Quantity | None]:
        """Seconds of an update on the slowest rank; nothing where no time is known."""
        if not self.curve.is_timed:
            return {}, None
        costs = [self.curve.update(kind.runs, with_sync=self.with_sync) for kind in pieces]
        cost = max(costs, key=lambda c: self.curve.seconds(c).value)
        return cost, self.curve.seconds(cost)

    def _used(self, sizes: Iterable[int]) -> Quantity | None:
        used = [q for q in map(self.curve.used_bytes, sizes) if q is not None]
        if not used:
            return None
        return Quantity(
            value=max(q.value for q in used),
            low=max(q.low for q in used),
            high=max(q.high for q in used),
        )
