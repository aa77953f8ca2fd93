"""Which of several devices comes first, by time or by cost, and how likely that is right."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bsprof.fit.samples import spread_of_outcomes
from bsprof.predict.scenarios import factors
from bsprof.recommend.curve import Cost, Curve
from bsprof.records import Plan, Profile, Quantity

_Z90 = 1.645
_HOUR_S = 3600.0
_MILLION = 1e6


class RankedBy(StrEnum):
    """What the first has least of."""

    TIME = "time"
    COST = "cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The order of profiles, the best first.

    Attributes:
        by: What it is by.
        order: Indices into the comparison's profiles.
        first_is_right: Probability, 0 to 1, that the first one is the best.
        order_is_right: Probability that the whole order is right.
    """

    by: RankedBy
    order: tuple[int, ...]
    first_is_right: float
    order_is_right: float


def rates_in_worlds(
    profile: Profile, name: str, plan: Plan, rate: Quantity, *, whole_update: bool, with_sync: bool
) -> tuple[float, ...]:
    """What a rate is in each world.

    Predictions of several devices share the worlds of the laws that they share. A measured rate
    has its own, drawn from its interval.

    Args:
        name: Tells the profile from others.
        plan: That is run.
        rate: As answered.
        whole_update: Whether it is of updates, or of micro-steps alone.
        with_sync: Whether an update synchronises.
    """
    curve = Curve.of(profile)
    if not curve.worlds:
        low = max(rate.low, rate.value * 1e-3)
        spread = math.log(max(rate.high, low) / low) / (2 * _Z90)
        return tuple(rate.value * factor for factor in factors(f"rate {name}", spread))
    if whole_update:
        costs = [curve.update(kind.runs, with_sync=with_sync) for kind in plan.pieces]
        cost: Cost = max(costs, key=lambda c: curve.seconds(c).value)
    else:
        cost = curve.micro_step(plan.micro_batch_size)
    nominal = curve.seconds(cost).value
    return tuple(rate.value * nominal / seconds for seconds in curve.outcomes(cost))


def cost_per_million(
    rate: Quantity, worlds: Sequence[float], price_per_hour: float, ranks: int
) -> Quantity:
    """What a million samples or tokens cost, in the price's own unit.

    Args:
        rate: Samples or tokens per second over all ranks.
        worlds: The same in each world.
        price_per_hour: Of one device.
        ranks: Devices that are paid.
    """
    amount = price_per_hour * ranks / _HOUR_S * _MILLION
    return spread_of_outcomes(amount / rate.value, [amount / r for r in worlds])


def ranking(by: RankedBy, outcomes: Sequence[Sequence[float]], nominal: Sequence[float]) -> Ranking:
    """The order by what is least, from what it is in each world.

    Args:
        outcomes: Of each profile, in each world; at least two profiles.
        nominal: The same as answered.
    """
    order = tuple(sorted(range(len(nominal)), key=nominal.__getitem__))
    worlds = list(zip(*outcomes, strict=True))
    first = order[0]
    wins = sum(world[first] <= min(world) for world in worlds)
    whole = sum(all(world[a] <= world[b] for a, b in itertools.pairwise(order)) for world in worlds)
    # Between the worlds at hand and certainty lies more than they can show (rule of succession).
    count = len(worlds)
    return Ranking(
        by=by,
        order=order,
        first_is_right=(wins + 1) / (count + 2),
        order_is_right=(whole + 1) / (count + 2),
    )


def price_of(prices: Mapping[str, float], profile: Profile) -> float | None:
    """The price of a profile's device, by any of the names that the store knows it by."""
    from bsprof.store.folder import matches

    for name, price in prices.items():
        if matches(profile, None, name):
            return price
    return None
