"""Scores of predictions against measurements; pure arithmetic on plain numbers."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bsprof.records import Quantity

NEAR = 0.02
"""A miss of a bracket by less than this share of the predicted peak is a near miss."""
BELOW = 0.97
ABOVE = 1.10
"""Capacities at which verdicts are asked, over the measured peak: where it does not fit, and where
it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A prediction beside the measurement that it is held to, in bytes.

    Attributes:
        name: Of the row.
        model: Whose rows make up a line in the micro-batch size.
        micro_batch: Size.
    """

    name: str
    model: str
    micro_batch: int
    predicted: Quantity
    measured: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted.value / self.measured - 1

    def shifted(self, offset: float) -> Pair:
        """With a constant added to what is predicted."""
        p = self.predicted
        return Pair(
            name=self.name,
            model=self.model,
            micro_batch=self.micro_batch,
            predicted=Quantity(value=p.value + offset, low=p.low + offset, high=p.high + offset),
            measured=self.measured,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """How far off a group of predictions is.

    Attributes:
        count: Rows.
        median, ninetieth: Of the absolute relative error.
        signed: Median of the relative error; below zero is too low.
        covered: Share of measurements inside the interval.
        width: Median of the interval's full width over the value.
        too_low: Share predicted below the measurement.
    """

    count: int
    median: float
    ninetieth: float
    signed: float
    covered: float
    width: float
    too_low: float


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least that share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def errors_of(pairs: Sequence[Pair]) -> Errors | None:
    """The errors of a group; None where it is empty."""
    if not pairs:
        return None
    errors = [pair.error for pair in pairs]
    sizes = [abs(error) for error in errors]
    inside = [pair.predicted.low <= pair.measured <= pair.predicted.high for pair in pairs]
    return Errors(
        count=len(pairs),
        median=statistics.median(sizes),
        ninetieth=quantile(sizes, 0.9),
        signed=statistics.median(errors),
        covered=sum(inside) / len(inside),
        width=statistics.median(pair.predicted.relative_width for pair in pairs),
        too_low=sum(error < 0 for error in errors) / len(errors),
    )


LEAST_GROWTH = 0.05
"""Share of the larger measurement below which a growth between two sizes says nothing of a slope:
where the optimizer step has the peak, what is left of it is rounding."""


def slope_pairs(pairs: Iterable[Pair]) -> list[Pair]:
    """Bytes per sample, from the smallest and the largest size of each model.

    Models with one size, or whose measurements hardly grow, have none.
    """
    by_model: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_model.setdefault(pair.model, []).append(pair)
    slopes = []
    for model, found in sorted(by_model.items()):
        low = min(found, key=lambda pair: pair.micro_batch)
        high = max(found, key=lambda pair: pair.micro_batch)
        samples = high.micro_batch - low.micro_batch
        if samples <= 0 or high.measured - low.measured < LEAST_GROWTH * high.measured:
            continue
        slopes.append(
            Pair(
                name=high.name,
                model=model,
                micro_batch=samples,
                predicted=Quantity.exact((high.predicted.value - low.predicted.value) / samples),
                measured=(high.measured - low.measured) / samples,
            )
        )
    return slopes


def half_of(name: str) -> int:
    """0 or 1 by name alone: the half that fits an offset, and the half that is scored with it."""
    return hashlib.sha256(name.encode()).digest()[0] % 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """One constant of a source: what its monitoring, its neighbours or its loop add everywhere.

    It is fitted on the models of one half and scored on the other, and goes no further than the
    tables of a validation.

    Attributes:
        bytes: Median of measured less predicted over the first half.
        fitted_on: Rows of the first half.
        scored: Errors of the second half with it.
        slopes: Of bytes per sample, of the second half.
        pairs: The second half, shifted.
    """

    bytes: float
    fitted_on: int
    scored: Errors | None
    slopes: Errors | None
    pairs: tuple[Pair, ...]


def fitted_offset(pairs: Sequence[Pair]) -> Offset | None:
    """The offset of a source; None where its first half is empty."""
    first = [pair for pair in pairs if half_of(pair.model) == 0]
    if not first:
        return None
    offset = statistics.median(pair.measured - pair.predicted.value for pair in first)
    second = tuple(pair.shifted(offset) for pair in pairs if half_of(pair.model) == 1)
    return Offset(
        bytes=offset,
        fitted_on=len(first),
        scored=errors_of(second),
        slopes=errors_of(slope_pairs(second)),
        pairs=second,
    )


class Place(StrEnum):
    """Where the predicted largest size lies, seen from a published bracket."""

    INSIDE = "inside"
    OPTIMISTIC = "optimistic"
    PESSIMISTIC = "pessimistic"


@dataclass(frozen=True, slots=True, kw_only=True)
class BracketAnswer:
    """What was predicted at the ends of a bracket.

    Attributes:
        name: Of the row.
        lower_fits: Whether the size that ran is predicted to; None where none did.
        upper_fits: Whether the size that ran out of memory is predicted to fit; None where none
            was tried.
        lower_near: Whether the lower end would fit with `NEAR` of its predicted peak less.
        upper_near: Whether the upper end would not fit with `NEAR` of its predicted peak more.
        recommended: Largest of the sizes asked about that is recommended with the usual headroom;
            None when unknown.
        fits: The size that ran; 0 where none did.
        fails: The next one, which ran out of memory; None where none was tried.
    """

    name: str
    lower_fits: bool | None = None
    upper_fits: bool | None = None
    lower_near: bool = False
    upper_near: bool = False
    recommended: int | None = None
    fits: int = 0
    fails: int | None = None

    @property
    def place(self) -> Place:
        """Where the prediction lies; a size above that fits where one below does not is above."""
        if self.upper_fits:
            return Place.OPTIMISTIC
        return Place.PESSIMISTIC if self.lower_fits is False else Place.INSIDE

    @property
    def is_near(self) -> bool:
        """Whether it is a miss, by less than `NEAR`."""
        if self.place is Place.OPTIMISTIC:
            return self.upper_near
        return self.place is Place.PESSIMISTIC and self.lower_near


@dataclass(frozen=True, slots=True, kw_only=True)
class BracketScore:
    """How predictions lie to the brackets with two ends.

    Attributes:
        count: Brackets.
        inside, optimistic, pessimistic: How many, near misses among the misses.
        near_optimistic, near_pessimistic: Near misses.
    """

    count: int
    inside: int
    optimistic: int
    pessimistic: int
    near_optimistic: int
    near_pessimistic: int

    @property
    def inside_share(self) -> float:
        """Inside, near misses counted as inside."""
        near = self.near_optimistic + self.near_pessimistic
        return (self.inside + near) / self.count

    @property
    def optimistic_share(self) -> float:
        """Optimistic by more than a near miss."""
        return (self.optimistic - self.near_optimistic) / self.count


def bracket_score(answers: Iterable[BracketAnswer]) -> BracketScore | None:
    """The score of the brackets that have two ends; None where there is none."""
    closed = [a for a in answers if a.fails is not None and a.fits]
    if not closed:
        return None
    places = [answer.place for answer in closed]
    near = [answer.place for answer in closed if answer.is_near]
    return BracketScore(
        count=len(closed),
        inside=places.count(Place.INSIDE),
        optimistic=places.count(Place.OPTIMISTIC),
        pessimistic=places.count(Place.PESSIMISTIC),
        near_optimistic=near.count(Place.OPTIMISTIC),
        near_pessimistic=near.count(Place.PESSIMISTIC),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """So many of so many."""

    hits: int
    count: int

    @property
    def value(self) -> float:
        """As a number from 0 to 1; 0 of none is 0."""
        return self.hits / self.count if self.count else 0.0


def share(answers: Iterable[bool]) -> Share:
    """How often it holds."""
    listed = list(answers)
    return Share(hits=sum(listed), count=len(listed))


def peak_shares(pairs: Sequence[Pair]) -> Mapping[str, Share]:
    """Wrong verdicts where the capacity is just below, and well above, each measured peak.

    A prediction says that a size fits where its value is within the capacity; with an interval it
    is sure of it only where the upper end is, and sure that it does not fit only where the lower
    end is not.
    """
    too_small = [(p.predicted, BELOW * p.measured) for p in pairs]
    enough = [(p.predicted, ABOVE * p.measured) for p in pairs]
    return {
        f"capacity {BELOW} of the peak, called fits": share(p.value <= c for p, c in too_small),
        f"capacity {ABOVE:.2f} of it, called does not fit": share(p.value > c for p, c in enough),
        f"capacity {BELOW}, surely fits": share(p.high <= c for p, c in too_small),
        f"capacity {ABOVE:.2f}, surely does not fit": share(p.low > c for p, c in enough),
    }


def limit_shares(answers: Sequence[BracketAnswer]) -> Mapping[str, Share]:
    """Wrong verdicts at published limits, and how useful the recommended sizes are."""
    known = [a for a in answers if a.recommended is not None and a.fits]
    return {
        "out of memory, called fits": share(
            a.upper_fits for a in answers if a.upper_fits is not None
        ),
        "ran, called does not fit": share(
            not a.lower_fits for a in answers if a.lower_fits is not None
        ),
        "recommended a size that ran out of memory": share(
            (a.recommended or 0) >= a.fails for a in known if a.fails is not None
        ),
        "recommended at least what ran": share((a.recommended or 0) >= a.fits for a in known),
        "recommended at least half of what ran": share(
            2 * (a.recommended or 0) >= a.fits for a in known
        ),
    }
