"""Ranks on different devices that train together: uneven shares, or the minimum for all.

A synchronous update lasts as long as its slowest rank. With equal shares the slowest device sets
the pace and the smallest the micro-batch; with shares by speed all end together. The pieces stay
weighted by their samples, so the gradient is the whole batch's either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bsprof.errors import NoFeasibleBatch, UsageError
from bsprof.fit.samples import TIE_SHARE
from bsprof.recommend.curve import Curve
from bsprof.recommend.infeasible import gradient_bytes, nothing_measured
from bsprof.recommend.pieces import exact_pieces, shares_of_ranks
from bsprof.recommend.target import headroom_of, read_question
from bsprof.recommend.wording import listing, plural
from bsprof.records import (
    DEFAULT_HEADROOM,
    Note,
    Plan,
    Profile,
    Quantity,
    RankPieces,
    Recommendation,
    per_second,
)
from bsprof.units import format_seconds, format_share


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of device: how many ranks it has, and what they can run."""

    name: str
    ranks: int
    curve: Curve
    limit_bytes: float
    single: bool
    known: dict[int, tuple[RankPieces, float] | None] = field(default_factory=dict)

    def sizes(self) -> list[int]:
        return [s for s in self.curve.sizes if self.curve.ceiling_bytes(s) <= self.limit_bytes]

    def allowed(self, piece: int) -> bool:
        return self.curve.is_safe(piece) and not (self.single and piece == 1)

    def best(self, share: int) -> tuple[RankPieces, float] | None:
        """The fastest way to run a share on one rank, and its seconds; None where there is none."""
        if share not in self.known:
            own = [share] if self._is_whole(share) else []
            found = [way for m in (*self.sizes(), *own) if (way := self.run(share, m)) is not None]
            self.known[share] = min(found, key=lambda way: way[1]) if found else None
        return self.known[share]

    def run(self, share: int, size: int) -> tuple[RankPieces, float] | None:
        """A share in pieces of a size, and its seconds."""
        if share < 1 or size > share:
            return None
        pieces = exact_pieces(share, 1, size, self.allowed)
        if pieces is None:
            return None
        cost = self.curve.update(pieces[0].runs, with_sync=True)
        return pieces[0], self.curve.seconds(cost).value

    def _is_whole(self, share: int) -> bool:
        between = self.curve.is_between(share) and self.curve.is_safe(share)
        return between and self.curve.ceiling_bytes(share) <= self.limit_bytes


@dataclass(frozen=True, slots=True)
class _Shares:
    """Pieces of all ranks, and how long the slowest takes."""

    pieces: tuple[RankPieces, ...]
    seconds: float
    slowest: int = 0


def recommend_mixed(
    profiles: Sequence[tuple[str, Profile]],
    ranks: Sequence[int],
    *,
    target_batch: int | None = None,
    target_tokens: int | None = None,
    headroom: float | int = DEFAULT_HEADROOM,
) -> Recommendation:
    """One plan for ranks on several kinds of devices, those of the first profile first.

    Shares follow the speed of the devices where that makes the update more than 1 % faster than
    equal shares; else all ranks run the same pieces, as the smallest and slowest device needs.

    Args:
        profiles: Name and profile of each kind; of the same workload.
        ranks: How many ranks each kind has, in the same order.
        target_batch: Samples per update over all ranks.
        target_tokens: The same in tokens; give one of the two.
        headroom: Memory to leave free on each: a float is a share from 0 to 1, an int is bytes.

    Raises:
        UsageError: other numbers of ranks than profiles, or a target below the number of ranks.
        MeasurementError: a profile without a time.
        NoFeasibleBatch: no shares add up to the target within the memory of all.
    """
    if len(ranks) != len(profiles) or min(ranks, default=0) < 1 or len(profiles) < 2:
        raise UsageError(
            "mixed devices need a number of ranks for each of at least two profiles",
            found=f"{plural(len(profiles), 'profile')}, ranks {', '.join(map(str, ranks))}",
            next_step="write --profile A --profile B --mixed 4,4",
        )
    world = sum(ranks)
    question = read_question(
        profiles[0][1],
        target_batch=target_batch,
        target_tokens=target_tokens,
        world_size=world,
        headroom=headroom,
        tolerance=0.0,
        objective="time",
    )
    target = question.target
    kinds = [
        _kind(name, profile, count, headroom_of(target, profile.device.usable_bytes))
        for (name, profile), count in zip(profiles, ranks, strict=True)
    ]
    even = _even(kinds, target.target_batch)
    uneven = _uneven(kinds, target.target_batch)
    found = [shares for shares in (even, uneven) if shares is not None]
    if not found:
        raise NoFeasibleBatch(
            f"no shares of {plural(target.target_batch, 'sample')} fit on these devices",
            found=f"{plural(world, 'rank')}: {listing([f'{k.ranks} on {k.name}' for k in kinds])}",
            next_step="measure more sizes, or choose a larger target",
        )
    chosen = min(found, key=lambda shares: shares.seconds)
    if even is not None and even.seconds <= chosen.seconds * (1 + TIE_SHARE):
        chosen = even
    return Recommendation(
        target=replace(target, world_size=world),
        plan=_plan(chosen, kinds),
        reasons=tuple(_reasons(chosen, even)),
        notes=(
            *question.notes,
            Note(
                code="mixed-devices",
                message="Ranks in order: "
                + listing([f"{plural(k.ranks, 'rank')} on {k.name}" for k in kinds])
                + ". The time to synchronise between unlike devices is left out unless it was "
                "measured, and ranks should hold the same parameters in the same precision.",
            ),
        ),
        profile=" + ".join(name for name, _ in profiles),
    )


def _kind(name: str, profile: Profile, ranks: int, free: int) -> _Kind:
    extra = gradient_bytes(profile) if profile.ranks == 1 else 0
    curve = Curve.of(profile, extra_bytes=extra or 0)
    if not curve.points or not curve.is_timed:
        raise nothing_measured(profile)
    facts = profile.facts
    return _Kind(
        name=name,
        ranks=ranks,
        curve=curve,
        limit_bytes=profile.device.usable_bytes - free,
        single=facts is not None and bool(facts.batch_norm_modules),
    )


def _shares(kinds: Sequence[_Kind], totals: Sequence[int]) -> _Shares | None:
    """What each kind runs with that many samples on all its ranks; None where one cannot."""
    pieces: list[RankPieces] = []
    seconds = []
    for kind, total in zip(kinds, totals, strict=True):
        if total < kind.ranks:
            return None
        times = []
        for share, count in shares_of_ranks(total, kind.ranks):
            way = kind.best(share)
            if way is None:
                return None
            pieces.append(replace(way[0], ranks=count))
            times.append(way[1])
        seconds.append(max(times))
    slowest = max(range(len(kinds)), key=seconds.__getitem__)
    return _Shares(tuple(pieces), seconds[slowest], slowest)


def _uneven(kinds: Sequence[_Kind], target: int) -> _Shares | None:
    """Shares by speed, then moved from the slowest while that helps."""
    world = sum(kind.ranks for kind in kinds)
    share = max(1, target // world)
    rates = []
    for kind in kinds:
        sizes = [s for s in kind.sizes() if s <= share] or kind.sizes()[:1]
        if not sizes:
            return None
        times = [kind.curve.seconds(kind.curve.micro_step(s)).value / s for s in sizes]
        rates.append(kind.ranks / min(times))
    totals = [max(k.ranks, int(target * r / sum(rates))) for k, r in zip(kinds, rates, strict=True)]
    totals[max(range(len(kinds)), key=rates.__getitem__)] += target - sum(totals)
    best = _shares(kinds, totals)
    step = max(1, target // 8)
    while True:
        moved = False
        for to in range(len(kinds)):
            if best is None or to == best.slowest:
                continue
            trial = [*totals]
            trial[best.slowest] -= step
            trial[to] += step
            other = _shares(kinds, trial)
            if other is not None and other.seconds < best.seconds:
                best, totals, moved = other, trial, True
        if not moved and step == 1:
            return best
        step = step if moved else max(1, step // 2)


def _even(kinds: Sequence[_Kind], target: int) -> _Shares | None:
    """The same pieces on all ranks: what the smallest device can, at the slowest one's pace."""
    world = sum(kind.ranks for kind in kinds)
    common = set.intersection(*(set(kind.sizes()) for kind in kinds))
    found: list[_Shares] = []
    for size in common:
        pieces = (
            exact_pieces(target, world, size, lambda n: all(kind.allowed(n) for kind in kinds))
            if size <= -(-target // world)
            else None
        )
        if pieces is None:
            continue
        seconds = max(
            kind.curve.seconds(kind.curve.update(p.runs, with_sync=True)).value
            for kind in kinds
            for p in pieces
        )
        found.append(_Shares(pieces, seconds))
    return min(found, key=lambda s: s.seconds) if found else None


def _plan(shares: _Shares, kinds: Sequence[_Kind]) -> Plan:
    batch = sum(kind.ranks * kind.samples for kind in shares.pieces)
    owners = [k for k in kinds for _ in range(k.ranks)]
    by_rank = [kind for kind in shares.pieces for _ in range(kind.ranks)]
    times = [
        owner.curve.seconds(owner.curve.update(pieces.runs, with_sync=True))
        for owner, pieces in zip(owners, by_rank, strict=True)
    ]
    slowest = Quantity(
        value=max(t.value for t in times),
        low=max(t.low for t in times),
        high=max(t.high for t in times),
    )
    return Plan(
        micro_batch_size=max(s for p in shares.pieces for s in p.sizes),
        accumulation_steps=max(p.steps for p in shares.pieces),
        pieces=shares.pieces,
        effective_batch_size=batch,
        step_time_s=slowest,
        samples_per_s=per_second(batch, slowest),
    )


def _reasons(chosen: _Shares, even: _Shares | None) -> list[str]:
    if chosen is even:
        return [
            (
                f"All ranks run the same pieces, an update in {format_seconds(chosen.seconds)}: "
                f"shares by speed are not more than {format_share(TIE_SHARE)} faster."
            ),
        ]
    text = f"Shares by speed: an update takes {format_seconds(chosen.seconds)}"
    if even is None:
        return [f"{text}; no equal pieces fit on all devices."]
    gain = even.seconds / chosen.seconds - 1
    return [
        (
            f"{text}; the same pieces on all ranks would take {format_seconds(even.seconds)}, "
            f"{format_share(gain)} longer, as the slowest device sets the pace."
        )
    ]
