"""Stored profiles side by side: which is faster, by how much, and what differs between them.

Pure Python on purpose, like `bsprof.recommend.plan`: nothing here imports numpy or torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from bsprof.errors import MeasurementError, NoFeasibleBatch, UsageError
from bsprof.fit.knee import knee_from_points
from bsprof.measure.choose import best_size
from bsprof.recommend.by_size import against_measured, points_by_size
from bsprof.recommend.compare_notes import notes
from bsprof.recommend.compared import ComparedProfile, Comparison, tokens_of
from bsprof.recommend.curve import Curve
from bsprof.recommend.differences import differences, labels
from bsprof.recommend.infeasible import nothing_measured
from bsprof.recommend.plan import recommend_plan
from bsprof.recommend.ranking import (
    RankedBy,
    Ranking,
    cost_per_million,
    prices_of,
    ranking,
    rates_in_worlds,
)
from bsprof.recommend.verdicts import judge, title
from bsprof.records import DEFAULT_HEADROOM, Mode, Plan, Profile, RankPieces, per_second

CARRIED = frozenset(
    {
        "inference-no-accumulation",
        "interpolated-size",
        "memory-unknown",
        "other-world-size",
        "synchronisation-not-measured",
    }
)
"""Codes of notes on a plan that bear on how it compares."""


def compare_profiles(
    profiles: Sequence[tuple[str, Profile]],
    *,
    target_batch: int | None = None,
    target_tokens: int | None = None,
    world_size: int = 1,
    headroom: float | int = DEFAULT_HEADROOM,
    prices: Mapping[str, float] | None = None,
) -> Comparison:
    """Profiles side by side, each by its best plan for a target or by its fastest size.

    The intervals of the ratios hold what each sweep saw of its own noise, as if the sweeps were
    independent; what changed on a machine between two sweeps is in none of them.

    Args:
        profiles: Name and profile; the first with an answer is what the others are held against.
        target_batch: Samples per update over all ranks. Without a target the sizes that sweeps
            confirmed, else the fastest per sample, are compared by their micro-steps.
        target_tokens: The same in tokens; give one of the two.
        world_size: Data-parallel ranks.
        headroom: Usable memory that a plan leaves free: a float is a share from 0 to 1, an int
            is bytes.
        prices: Per hour, by device as the store or the catalogue names it: ranks by cost as well.

    Raises:
        UsageError: fewer than two profiles, a question that one of them cannot be asked, or a
            price of a device that none of them is of.
    """
    if len(profiles) < 2:
        raise UsageError(
            "a comparison needs at least two profiles",
            found=f"{len(profiles)}",
            next_step="name them, as `bsprof profiles` lists them",
        )
    paid = prices_of(prices or {}, [profile for _, profile in profiles])
    names = labels(profiles)
    compared = []
    for label, (name, profile) in zip(names, profiles, strict=True):
        entry = ComparedProfile(name=name, label=label, profile=profile)
        try:
            if target_batch is None and target_tokens is None:
                compared.append(_by_fastest_size(entry))
            else:
                answer = recommend_plan(
                    profile,
                    target_batch=target_batch,
                    target_tokens=target_tokens,
                    world_size=world_size,
                    headroom=headroom,
                )
                compared.append(
                    replace(
                        entry,
                        plan=answer.plan,
                        rate_per_s=answer.plan.samples_per_s,
                        knee=answer.knee,
                        remarks=tuple(n for n in answer.notes if n.code in CARRIED),
                    )
                )
        except (NoFeasibleBatch, MeasurementError) as error:
            compared.append(replace(entry, error=error))
    unit: Literal["sample", "token"] = "token" if _by_tokens(compared) else "sample"
    if unit == "token":
        compared = [_in_tokens(entry) for entry in compared]
    whole = target_batch is not None or target_tokens is not None
    compared = [
        _with_worlds(entry, price, world_size if whole else 1, whole=whole)
        for entry, price in zip(compared, paid, strict=True)
    ]
    judged = judge(compared)
    only = [profile for _, profile in profiles]
    against = against_measured(only)
    return Comparison(
        title=title(judged, against),
        unit=unit,
        target_batch=target_batch,
        target_tokens=target_tokens,
        world_size=world_size,
        profiles=judged,
        differences=differences(only),
        notes=tuple(notes(judged, unit, against)),
        by_size=points_by_size(only),
        against=against,
        rankings=tuple(_rankings(judged)),
    )


def _with_worlds(
    entry: ComparedProfile, price: float | None, ranks: int, *, whole: bool
) -> ComparedProfile:
    """The entry with its rate in each world and its cost."""
    if entry.rate_per_s is None or entry.plan is None:
        return replace(entry, price_per_hour=price)
    trains = entry.profile.workload.mode is Mode.TRAIN
    worlds = rates_in_worlds(
        entry.profile,
        entry.name,
        entry.plan,
        entry.rate_per_s,
        whole_update=whole,
        with_sync=trains and ranks > 1,
    )
    cost = None if price is None else cost_per_million(entry.rate_per_s, worlds, price, ranks)
    return replace(entry, rate_worlds=worlds, price_per_hour=price, cost_per_million=cost)


def _rankings(judged: Sequence[ComparedProfile]) -> Iterator[Ranking]:
    timed = [i for i, e in enumerate(judged) if e.rate_per_s is not None]
    priced = [i for i in timed if judged[i].cost_per_million is not None]
    for by, which in ((RankedBy.TIME, timed), (RankedBy.COST, priced)):
        if len(which) < 2:
            continue
        outcomes, nominal = [], []
        for i in which:
            entry = judged[i]
            price = (entry.price_per_hour or 0.0) if by is RankedBy.COST else 1.0
            assert entry.rate_per_s is not None
            outcomes.append([price / rate for rate in entry.rate_worlds])
            nominal.append(price / entry.rate_per_s.value)
        found = ranking(by, outcomes, nominal)
        yield replace(found, order=tuple(which[place] for place in found.order))


def _by_fastest_size(entry: ComparedProfile) -> ComparedProfile:
    """The entry with the size that its sweep confirmed, else its fastest per sample."""
    profile = entry.profile
    curve = Curve.of(profile)
    if curve.points and not curve.is_timed:
        return _by_largest_size(entry, curve)
    points = tuple(curve.points.values())
    size = best_size([p for p in points if p.confirmed] or points, profile.device.usable_bytes)
    if size is None:
        raise nothing_measured(profile)
    pieces = RankPieces.of((size,))
    step_time = curve.seconds(curve.update(pieces.runs, with_sync=False))
    used = curve.used_bytes(size) if curve.memory_field == "device_used_bytes" else None
    usable = profile.device.usable_bytes
    plan = Plan(
        micro_batch_size=size,
        accumulation_steps=1,
        pieces=(pieces,),
        effective_batch_size=size,
        step_time_s=step_time,
        samples_per_s=per_second(size, step_time),
        device_used_bytes=used,
        headroom_bytes=None if used is None else math.floor(usable - used.high),
        confirmed=curve.points[size].confirmed,
        regime=curve.regime(size),
        energy_j=curve.points[size].energy_j,
    )
    micro_step = curve.seconds(curve.micro_step(size))
    return replace(
        entry,
        plan=plan,
        rate_per_s=per_second(size, micro_step),
        knee=knee_from_points(points),
    )


def _by_largest_size(entry: ComparedProfile, curve: Curve) -> ComparedProfile:
    """The entry with the largest size that leaves the usual headroom, else its smallest."""
    usable = entry.profile.device.usable_bytes
    limit = usable * (1 - DEFAULT_HEADROOM)
    within = [s for s in curve.sizes if curve.ceiling_bytes(s) <= limit]
    size = within[-1] if within else curve.sizes[0]
    used = curve.used_bytes(size) if curve.memory_field == "device_used_bytes" else None
    plan = Plan(
        micro_batch_size=size,
        accumulation_steps=1,
        pieces=(RankPieces.of((size,)),),
        effective_batch_size=size,
        device_used_bytes=used,
        headroom_bytes=None if used is None else math.floor(usable - used.high),
        regime=curve.regime(size),
    )
    return replace(entry, plan=plan)


def _by_tokens(compared: Sequence[ComparedProfile]) -> bool:
    """Whether all samples have tokens, but not all the same number of them."""
    tokens = {tokens_of(entry) for entry in compared}
    return len(tokens) > 1 and None not in tokens


def _in_tokens(entry: ComparedProfile) -> ComparedProfile:
    tokens = tokens_of(entry)
    if entry.rate_per_s is None or tokens is None:
        return entry
    return replace(entry, rate_per_s=entry.rate_per_s.scaled(tokens))
