"""Terms of a law on a family: its own, its relatives', or those of the law that it is like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bsprof.predict.roofline.families import ROOT, line_of
from bsprof.predict.roofline.groups import LAWS
from bsprof.records.calibration import Calibration, Coefficient, LikeLaw


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Terms, and whose they are.

    Attributes:
        terms: All of the law, by name.
        family: Nearest family on the line whose devices were measured; the root where none was.
        devices: Those devices of the family itself.
        like: Law that the terms are of, if another; else empty.
    """

    terms: Mapping[str, Coefficient]
    family: str
    devices: tuple[str, ...]
    like: str


def resolve(law: str, family: str, calibration: Calibration) -> Resolved:
    """Terms of a law on a family.

    The nearest family on the line wins; where none has the law, the one that stands for it does;
    where there is none either, the terms are what the law expects before any data.
    """
    line = [name for name in line_of(family) if name in calibration.families]
    terms: dict[str, Coefficient] = {
        name: Coefficient(value=term.default, error=term.default * term.spread)
        for name, term in LAWS[law].terms.items()
    }
    owners = [name for name in line if law in calibration.families[name].laws]
    if not owners:
        like = calibration.like.get(law)
        if like is None:
            return Resolved(terms=terms, family=ROOT, devices=(), like="")
        source = resolve(like.law, family, calibration)
        terms |= taken_over(law, like, source.terms)
        return Resolved(
            terms=terms,
            family=source.family,
            devices=source.devices,
            like=source.like or like.law,
        )
    for name in reversed(owners):
        known = calibration.families[name].laws[law].terms
        terms |= {key: value for key, value in known.items() if key in terms}
    measured = [name for name in owners if calibration.families[name].laws[law].rows]
    nearest = measured[0] if measured else ROOT
    own = calibration.families[family].laws.get(law) if family in calibration.families else None
    return Resolved(
        terms=terms, family=nearest, devices=own.devices if own is not None else (), like=""
    )


def taken_over(law: str, like: LikeLaw, terms: Mapping[str, Coefficient]) -> dict[str, Coefficient]:
    """Terms of a law from those of another: its share scaled, its error widened by the spread."""
    found = {}
    for name, term in LAWS[law].terms.items():
        known = terms.get(name)
        if known is None or known.value <= 0:
            continue
        factor = like.share if name == "share" else like.factors.get(name, 1.0)
        value = min(max(known.value * factor, term.low), term.high)
        relative = known.error / known.value
        if name == "share":
            relative = (relative**2 + like.spread**2) ** 0.5
        found[name] = Coefficient(value=value, error=value * relative)
    return found
