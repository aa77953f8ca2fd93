"""How compared profiles stand against each other, in numbers and in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bsprof.fit.samples import TIE_SHARE, relative_difference, spread_of_outcomes
from bsprof.recommend.by_size import FIELD_NAMES, TIME_FIELD, AgainstMeasured
from bsprof.recommend.compared import ComparedProfile
from bsprof.recommend.wording import listing, three_digits, with_interval
from bsprof.records import Origin, Quantity
from bsprof.units import format_share


def judge(compared: Sequence[ComparedProfile]) -> tuple[ComparedProfile, ...]:
    """The entries with their ratio to the first that has an answer, and the verdict on it."""
    first = next((entry for entry in compared if entry.rate_per_s is not None), None)
    if first is None:
        return tuple(compared)
    judged = []
    for entry in compared:
        if entry is first:
            judged.append(replace(entry, ratio=Quantity.exact(1.0)))
        elif entry.error is not None:
            judged.append(replace(entry, verdict=f"{entry.label} has no answer"))
        elif entry.rate_per_s is None:
            judged.append(replace(entry, verdict=f"no time is known of {entry.label}"))
        else:
            ratio = _ratio(entry, first)
            judged.append(replace(entry, ratio=ratio, verdict=_verdict(entry, first, ratio)))
    return tuple(judged)


def _ratio(entry: ComparedProfile, other: ComparedProfile) -> Quantity:
    assert entry.rate_per_s is not None
    assert other.rate_per_s is not None
    if entry.rate_worlds and other.rate_worlds and _both_predicted(entry, other):
        value = entry.rate_per_s.value / other.rate_per_s.value
        pairs = zip(entry.rate_worlds, other.rate_worlds, strict=True)
        return spread_of_outcomes(value, [a / b for a, b in pairs])
    excess = relative_difference(entry.rate_per_s, other.rate_per_s)
    low = max(0.0, 1 + excess.low)
    return Quantity(value=1 + excess.value, low=low, high=1 + excess.high)


def _both_predicted(*entries: ComparedProfile) -> bool:
    return all(entry.profile.origin is Origin.PREDICTED for entry in entries)


def _any_predicted(*entries: ComparedProfile) -> bool:
    return any(entry.profile.origin is Origin.PREDICTED for entry in entries)


def _are(*entries: ComparedProfile) -> str:
    """`is`, or `is predicted to be`; a prediction beside its own device's measurement is told."""
    devices = {entry.profile.device.name for entry in entries}
    both = len({entry.profile.origin for entry in entries}) > 1
    if not _any_predicted(*entries) or (both and len(devices) == 1):
        return "is"
    return "is predicted to be"


def _verdict(entry: ComparedProfile, first: ComparedProfile, ratio: Quantity) -> str:
    value, space, interval = with_interval(ratio, three_digits).partition(" ")
    if not ratio.low <= 1 <= ratio.high:
        are = _are(entry, first)
        return f"{entry.label} {are} {value} times as fast as {first.label}{space}{interval}"
    within = max(1 - ratio.low, ratio.high - 1)
    if within <= TIE_SHARE:
        both = listing([first.label, entry.label])
        are = "are predicted to be" if _any_predicted(entry, first) else "are"
        return f"{both} {are} equally fast, to within {format_share(within)}"
    both = f"{entry.label} and {first.label}"
    return f"no difference shown between {both}: {value} times as fast{space}{interval}"


def title(judged: Sequence[ComparedProfile], against: Sequence[AgainstMeasured]) -> str:
    answered = [entry for entry in judged if entry.rate_per_s is not None]
    planned = [entry for entry in judged if entry.plan is not None]
    if not planned:
        return "none of the profiles has an answer"
    if len(answered) < 2 and len(planned) > 1:
        return error_text(judged, against[0]) if against else _sizes_text(planned)
    if len(planned) == 1:
        return f"only {planned[0].label} has an answer"
    if len(answered) == 1:
        return f"only {answered[0].label} has an answer"
    if len(judged) == 2:
        timed = [pair for pair in against if pair.field == TIME_FIELD]
        return error_text(judged, timed[0]) if timed else judged[1].verdict
    fastest = max(answered, key=lambda e: e.rate_per_s.value if e.rate_per_s else 0.0)
    level = [e for e in answered if e is fastest or _ratio(fastest, e).low <= 1]
    if len(level) == 1:
        return f"{fastest.label} {_are(*answered)} the fastest"
    names = listing([entry.label for entry in level])
    if len(level) == len(answered):
        return f"no difference in speed shown between {names}"
    return f"{names} are the fastest, no difference shown between them"


def _sizes_text(planned: Sequence[ComparedProfile]) -> str:
    """Which size each runs, where speed cannot be compared."""
    sizes = [f"{e.plan.micro_batch_size:,} on {e.label}" for e in planned if e.plan is not None]
    return f"micro-batch {listing(sizes)}; no time is known to compare"


def error_text(judged: Sequence[ComparedProfile], pair: AgainstMeasured) -> str:
    """How far a prediction is from the measurement, one sentence without a full stop."""
    error, count = pair.median_error, len(pair.sizes)
    way = "high" if error > 0 else "low"
    off = "as measured" if abs(error) < 0.0005 else f"{format_share(abs(error))} too {way}"
    over = "at one size" if count == 1 else f"in the median of {count} sizes"
    label = judged[pair.predicted].label
    named = "" if label == "predicted" else f" ({label})"
    return (
        f"{FIELD_NAMES[pair.field]} is predicted {off} {over}{named}; {pair.inside} of {count} "
        "measured values lie in the interval"
    )
