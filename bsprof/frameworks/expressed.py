"""Which pieces a framework can run, of a plan that has pieces of several sizes.

Most trainers know one micro-batch size and one number of micro-steps for all ranks. A plan with
unequal pieces is then replaced: by equal pieces with the same sum where any exist, else by those
whose sum is nearest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bsprof.recommend.curve import Curve
from bsprof.recommend.pieces import equal_pieces
from bsprof.records import Mode, Plan, Profile, RankPieces, Recommendation
from bsprof.units import format_share

_FEWEST_SHARE = 4
"""Near misses have pieces of at least the plan's size over this: smaller ones waste the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expressed:
    """Pieces that are run, and how they came about.

    Attributes:
        pieces: As in `Plan`.
        target_batch: Samples per update that the plan runs.
        says: Why these are not the plan's own; empty where they are.
    """

    pieces: tuple[RankPieces, ...]
    target_batch: int
    says: tuple[str, ...] = ()

    @property
    def micro_batch_size(self) -> int:
        """Samples of the largest piece."""
        return max(size for kind in self.pieces for size in kind.sizes)

    @property
    def accumulation_steps(self) -> int:
        """Micro-steps per update of the rank that has most."""
        return max(kind.steps for kind in self.pieces)

    @property
    def world_size(self) -> int:
        """Data-parallel ranks."""
        return sum(kind.ranks for kind in self.pieces)

    @property
    def effective_batch_size(self) -> int:
        """Samples per update over all ranks."""
        return sum(kind.ranks * kind.samples for kind in self.pieces)

    @property
    def is_exact(self) -> bool:
        """Whether the sum is the plan's."""
        return self.effective_batch_size == self.target_batch


def is_equal(pieces: tuple[RankPieces, ...]) -> bool:
    """Whether all ranks run the same number of pieces of one size."""
    return len({(kind.sizes, kind.steps) for kind in pieces}) == 1 and len(pieces[0].sizes) == 1


def as_planned(plan: Plan) -> Expressed:
    """The plan's own pieces, for what can run any."""
    return Expressed(pieces=plan.pieces, target_batch=plan.effective_batch_size)


def in_equal_pieces(recommendation: Recommendation, profile: Profile, name: str) -> Expressed:
    """The plan in pieces of one size.

    Args:
        recommendation: What to run.
        profile: Says which sizes are safe, and what they cost.
        name: What the framework is called in sentences.
    """
    plan, world = recommendation.plan, recommendation.target.world_size
    batch = plan.effective_batch_size
    if is_equal(plan.pieces):
        return as_planned(plan)
    curve = Curve.of(profile)
    safe = [
        m
        for m in range(plan.micro_batch_size, 0, -1)
        if curve.is_safe(m) and (not curve.sizes or m >= curve.sizes[0])
    ]
    share = batch // world
    exact = next((m for m in safe if batch % world == 0 and share % m == 0), None)
    near = _nearest(batch, world, safe, plan.micro_batch_size)
    cannot = f"The plan has pieces of several sizes, and {name} knows one size for all."
    if exact is not None:
        pieces = (RankPieces.of((exact,) * (share // exact), ranks=world),)
        says = [f"{cannot} The same {batch:,} samples in equal pieces of {exact:,}:"]
        says[0] = says[0][:-1] + _cost(curve, plan.pieces, pieces, profile, world)
        if near is not None and exact * 2 <= plan.micro_batch_size:
            says.append(_offer(near, batch))
        return Expressed(pieces=pieces, target_batch=batch, says=tuple(says))
    smallest = (RankPieces.of((safe[-1] if safe else 1,), ranks=world),)
    found = Expressed(pieces=near or smallest, target_batch=batch)
    off = found.effective_batch_size - batch
    why = f"{batch:,} samples are no multiple of {world:,} ranks" if batch % world else "none fit"
    says = [
        (
            f"{cannot} No equal pieces add up to {batch:,} ({why}): these settings train with "
            f"{found.effective_batch_size:,} samples per update, {abs(off):,} "
            f"({format_share(abs(off) / batch)}) {'more' if off > 0 else 'fewer'} than planned."
        ),
        (
            "`bsprof recommend --for pytorch` (bsprof.accumulate) and `--for composer` run "
            "the plan "
            "as it is."
        ),
    ]
    return replace(found, says=tuple(says))


def _nearest(
    batch: int, world: int, sizes: list[int], largest: int
) -> tuple[RankPieces, ...] | None:
    """Equal pieces whose sum is nearest to the batch; of equally near ones the largest pieces."""
    found = [
        (abs(kind[0].samples * world - batch), -m, kind)
        for m in sizes
        if m * _FEWEST_SHARE >= largest and (kind := equal_pieces(batch, world, m, 1.0)) is not None
    ]
    return min(found, key=lambda entry: entry[:2])[2] if found else None


def _offer(near: tuple[RankPieces, ...], batch: int) -> str:
    found = Expressed(pieces=near, target_batch=batch)
    off = abs(found.effective_batch_size - batch) / batch
    return (
        f"A target of {found.effective_batch_size:,} samples ({format_share(off)} off) runs in "
        f"{found.accumulation_steps:,} pieces of {found.micro_batch_size:,}."
    )


def _cost(
    curve: Curve,
    planned: tuple[RankPieces, ...],
    equal: tuple[RankPieces, ...],
    profile: Profile,
    world: int,
) -> str:
    """What equal pieces cost against the plan's, the end of a sentence."""
    if not curve.is_timed:
        return "; their time is not known."
    sync = profile.workload.mode is Mode.TRAIN and world > 1
    first, second = (
        max(curve.seconds(curve.update(kind.runs, with_sync=sync)).value for kind in kinds)
        for kinds in (planned, equal)
    )
    excess = second / first - 1
    if abs(excess) < 0.0005:
        return ", as fast as the plan."
    word = "slower" if excess > 0 else "faster"
    return f", {format_share(abs(excess))} {word} than the plan."
