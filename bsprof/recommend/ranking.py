"""Which of several devices comes first, by time or by cost, and how likely that is right."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bsprof.errors import UsageError
from bsprof.fit.samples import spread_of_outcomes
from bsprof.fit.worlds import probability
from bsprof.hardware.catalogue import devices_named
from bsprof.predict.scenarios import WORLDS, factors
from bsprof.recommend.curve import Cost, Curve
from bsprof.recommend.wording import listing
from bsprof.records import DeviceSpec, Plan, Profile, Quantity
from bsprof.store.folder import matches

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
    has its own, drawn from its interval; so has a prediction made with another number of worlds.

    Args:
        name: Tells the profile from others.
        plan: That is run.
        rate: As answered.
        whole_update: Whether it is of updates, or of micro-steps alone.
        with_sync: Whether an update synchronises.
    """
    curve = Curve.of(profile)
    if not _same_worlds(curve):
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


def _same_worlds(curve: Curve) -> bool:
    """Whether predicted times were predicted in the worlds of today's predictions."""
    return bool(curve.worlds) and all(len(row) == WORLDS for row in curve.worlds.values())


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
    return Ranking(
        by=by,
        order=order,
        first_is_right=probability([world[first] <= min(world) for world in worlds]),
        order_is_right=probability(
            [all(world[a] <= world[b] for a, b in itertools.pairwise(order)) for world in worlds]
        ),
    )


def prices_of(prices: Mapping[str, float], profiles: Sequence[Profile]) -> tuple[float | None, ...]:
    """The price of each profile's device; None where none was given for it.

    Args:
        prices: By any name of the catalogue; or, for what the catalogue lacks, as the store knows
            a device: part of its name, or its kind.

    Raises:
        UsageError: a price of a device that no profile is of.
    """
    meant = {name: [_is_meant(name, profile) for profile in profiles] for name in prices}
    for name, whose in meant.items():
        if not any(whose):
            raise price_of_none(name, [profile.device.name for profile in profiles])
    return tuple(
        next((price for name, price in prices.items() if meant[name][place]), None)
        for place in range(len(profiles))
    )


def refuse_useless_prices(
    prices: Mapping[str, float], devices: Sequence[DeviceSpec], profiles: Sequence[Profile]
) -> None:
    """The same refusal before anything is predicted for these devices.

    Raises:
        UsageError: a price of a device that is none of them, and that no profile is of.
    """
    for name in prices:
        named = {device.name for device in devices_named(name)}
        # Of a name that the catalogue lacks, the profiles will tell whether it means one of them.
        ahead = any(device.name in named for device in devices) or (devices and not named)
        if not ahead and not any(_is_meant(name, profile) for profile in profiles):
            names = [device.name for device in devices] + [p.device.name for p in profiles]
            raise price_of_none(name, names)


def price_of_none(name: str, devices: Sequence[str]) -> UsageError:
    """The error for a price that nothing asks for."""
    return UsageError(
        f"a price is given for {name}, and nothing that is compared is of such a device",
        found=listing(sorted(set(devices))),
        next_step="name the device as `bsprof devices` or its profile does",
    )


def _is_meant(name: str, profile: Profile) -> bool:
    """Whether a name means a profile's device; one of the catalogue means nothing beside it."""
    named = {device.name for device in devices_named(name)}
    if not named:
        return matches(profile, None, name)
    if profile.prediction is not None:
        return profile.prediction.device in named
    snapshot = profile.device
    own = {str(snapshot.details.get("catalogue"))}
    return bool(named & (own | {device.name for device in devices_named(snapshot.name)}))
