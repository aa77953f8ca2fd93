"""Stored profiles side by side: which is faster, by how much, and what differs between them.

Pure Python on purpose, like `bsprof.recommend.plan`: nothing here imports numpy or torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bsprof.errors import BsprofError, MeasurementError, NoFeasibleBatch, UsageError
from bsprof.fit.knee import knee_from_points
from bsprof.fit.samples import TIE_SHARE, relative_difference
from bsprof.measure.choose import best_size
from bsprof.recommend.compare_memory import (
    FIELD_NAMES,
    AgainstMeasured,
    SizeMemory,
    against_measured,
    memory_by_size,
)
from bsprof.recommend.curve import Curve
from bsprof.recommend.differences import (
    Difference,
    differences,
    labels,
    models_differ,
    sample_size,
    sources_differ,
)
from bsprof.recommend.infeasible import nothing_measured
from bsprof.recommend.plan import recommend_plan
from bsprof.recommend.target import DEFAULT_HEADROOM
from bsprof.recommend.wording import listing, with_interval
from bsprof.records import Note, Origin, Plan, Profile, Quantity, RankPieces, per_second
from bsprof.units import format_count, format_share

CPU_SCATTER = 0.10
"""By how much one size differs between processes on a CPU: page faults of a heap that is laid out
by chance (a small convnet, four processes a size, two cores)."""
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
UNLIKE = frozenset({"different-models", "different-modes", "edited-sources", "different-samples"})
"""Codes of notes that say: this compares things that are not alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedProfile:
    """One profile of a comparison.

    Attributes:
        name: Its name in the store.
        label: The shortest text that tells it from the others.
        profile: The profile itself.
        plan: With a target the recommended plan; without one, one micro-batch of the fastest
            size per update (of the largest that leaves the usual headroom where no time is
            known). None where the profile has no answer; `error` then says why.
        rate_per_s: What is compared, in samples or tokens per second: of the plan, or without a
            target of its micro-steps alone, which many accumulation steps approach. None without
            an answer, and where no time is known.
        knee: Smallest size that reaches most of the throughput; None where it does not show.
        ratio: `rate_per_s` over that of the first profile with an answer; None without both.
        verdict: The ratio as a sentence without a full stop; empty for that first profile.
        error: Why there is no answer; None where there is one.
        remarks: What the plan's own notes say that bears on the comparison.
    """

    name: str
    label: str
    profile: Profile
    plan: Plan | None = None
    rate_per_s: Quantity | None = None
    knee: Quantity | None = None
    ratio: Quantity | None = None
    verdict: str = ""
    error: BsprofError | None = None
    remarks: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Several profiles side by side.

    Attributes:
        title: Which is the fastest, one sentence without a full stop.
        unit: What is counted per second: tokens where samples have different numbers of them.
        target_batch, target_tokens: What was asked, per update over all ranks; both None
            compares the fastest sizes.
        world_size: Data-parallel ranks.
        profiles: In the order given, at least two.
        differences: What is not the same in all of them.
        notes: What makes the comparison unequal, or leaves something out.
        memory: All sizes with their memory; empty where all profiles were measured.
        against: Predicted profiles against measured ones of the same workload.
    """

    title: str
    unit: Literal["sample", "token"]
    target_batch: int | None
    target_tokens: int | None
    world_size: int
    profiles: tuple[ComparedProfile, ...]
    differences: tuple[Difference, ...]
    notes: tuple[Note, ...]
    memory: tuple[SizeMemory, ...] = ()
    against: tuple[AgainstMeasured, ...] = ()

    @property
    def has_target(self) -> bool:
        """Whether plans for a target are compared, not the fastest sizes."""
        return self.target_batch is not None or self.target_tokens is not None

    def raise_for_status(self) -> None:
        """Raise why the first profile has no answer, when not one of them has."""
        errors = [p.error for p in self.profiles if p.error is not None]
        if len(errors) == len(self.profiles):
            raise errors[0]


def compare_profiles(
    profiles: Sequence[tuple[str, Profile]],
    *,
    target_batch: int | None = None,
    target_tokens: int | None = None,
    world_size: int = 1,
    headroom: float | int = DEFAULT_HEADROOM,
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

    Raises:
        UsageError: fewer than two profiles, or a question that one of them cannot be asked.
    """
    if len(profiles) < 2:
        raise UsageError(
            "a comparison needs at least two profiles",
            found=f"{len(profiles)}",
            next_step="name them, as `bsprof profiles` lists them",
        )
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
    judged = _judged(compared)
    only = [profile for _, profile in profiles]
    against = against_measured(only)
    return Comparison(
        title=_title(judged, against),
        unit=unit,
        target_batch=target_batch,
        target_tokens=target_tokens,
        world_size=world_size,
        profiles=judged,
        differences=differences(only),
        notes=tuple(_notes(judged, unit, against)),
        memory=memory_by_size(only),
        against=against,
    )


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


def _tokens(entry: ComparedProfile) -> int | None:
    facts = entry.profile.facts
    return None if facts is None else facts.tokens_per_sample


def _by_tokens(compared: Sequence[ComparedProfile]) -> bool:
    """Whether all samples have tokens, but not all the same number of them."""
    tokens = {_tokens(entry) for entry in compared}
    return len(tokens) > 1 and None not in tokens


def _in_tokens(entry: ComparedProfile) -> ComparedProfile:
    tokens = _tokens(entry)
    if entry.rate_per_s is None or tokens is None:
        return entry
    return replace(entry, rate_per_s=entry.rate_per_s.scaled(tokens))


def _judged(compared: Sequence[ComparedProfile]) -> tuple[ComparedProfile, ...]:
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
    excess = relative_difference(entry.rate_per_s, other.rate_per_s)
    low = max(0.0, 1 + excess.low)
    return Quantity(value=1 + excess.value, low=low, high=1 + excess.high)


def ratio_text(ratio: float) -> str:
    """A ratio for people, three significant digits: `1.80`, `0.525`."""
    return f"{ratio:#.3g}".rstrip(".") if 1e-4 < ratio < 999.5 else format_count(ratio)


def _verdict(entry: ComparedProfile, first: ComparedProfile, ratio: Quantity) -> str:
    value, space, interval = with_interval(ratio, ratio_text).partition(" ")
    if not ratio.low <= 1 <= ratio.high:
        return f"{entry.label} is {value} times as fast as {first.label}{space}{interval}"
    within = max(1 - ratio.low, ratio.high - 1)
    if within <= TIE_SHARE:
        both = listing([first.label, entry.label])
        return f"{both} are equally fast, to within {format_share(within)}"
    both = f"{entry.label} and {first.label}"
    return f"no difference shown between {both}: {value} times as fast{space}{interval}"


def _title(judged: Sequence[ComparedProfile], against: Sequence[AgainstMeasured]) -> str:
    answered = [entry for entry in judged if entry.rate_per_s is not None]
    planned = [entry for entry in judged if entry.plan is not None]
    if not planned:
        return "none of the profiles has an answer"
    if len(answered) < 2 and len(planned) > 1:
        return _error_text(judged, against[0]) if against else _sizes_text(planned)
    if len(planned) == 1:
        return f"only {planned[0].label} has an answer"
    if len(answered) == 1:
        return f"only {answered[0].label} has an answer"
    if len(judged) == 2:
        return judged[1].verdict
    fastest = max(answered, key=lambda e: e.rate_per_s.value if e.rate_per_s else 0.0)
    level = [e for e in answered if e is fastest or _ratio(fastest, e).low <= 1]
    if len(level) == 1:
        return f"{fastest.label} is the fastest"
    names = listing([entry.label for entry in level])
    if len(level) == len(answered):
        return f"no difference in speed shown between {names}"
    return f"{names} are the fastest, no difference shown between them"


def _sizes_text(planned: Sequence[ComparedProfile]) -> str:
    """Which size each runs, where speed cannot be compared."""
    sizes = [f"{e.plan.micro_batch_size:,} on {e.label}" for e in planned if e.plan is not None]
    return f"micro-batch {listing(sizes)}; no time is known to compare"


def _error_text(judged: Sequence[ComparedProfile], pair: AgainstMeasured) -> str:
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


def _notes(
    judged: Sequence[ComparedProfile], unit: str, against: Sequence[AgainstMeasured]
) -> Iterator[Note]:
    profiles = [entry.profile for entry in judged]
    yield from _on_likeness(judged, profiles, unit)
    for pair in against:
        if not pair.same_device:
            names = [judged[i].profile.device.name for i in (pair.predicted, pair.measured)]
            yield Note(
                code="different-devices",
                message=f"Memory was predicted for {names[0]} and measured on {names[1]}: context "
                "and libraries differ.",
            )
    for entry in judged:
        if entry.error is not None:
            yield Note(
                code="no-answer",
                message=f"{entry.label}: {entry.error.doing}",
                hint=entry.error.next_step,
            )
        if entry.profile.origin is not Origin.MEASURED:
            yield Note(
                code="not-measured",
                message=f"{entry.label}: the numbers are {entry.profile.origin}, not measured.",
            )
        if not entry.profile.complete:
            yield Note(
                code="incomplete-profile",
                message=f"The sweep of {entry.label} did not end by itself; sizes that were not "
                "tried may be faster.",
            )
        for remark in entry.remarks:
            yield replace(remark, message=f"{entry.label}: {remark.message}")
    if any(map(_is_small_on_cpu, judged)):
        yield Note(
            code="cpu-processes-differ",
            message="On a CPU one size runs up to 10 % faster or slower from process to process; "
            "the intervals hold only what each sweep saw within itself.",
            hint="sweep again before so small a difference counts",
        )


def _is_small_on_cpu(entry: ComparedProfile) -> bool:
    """Whether a difference is shown that another process might not show."""
    if entry.ratio is None or not entry.verdict or entry.profile.device.kind != "cpu":
        return False
    shown = not entry.ratio.low <= 1 <= entry.ratio.high
    return shown and abs(entry.ratio.value - 1) <= CPU_SCATTER


def _on_likeness(
    judged: Sequence[ComparedProfile], profiles: Sequence[Profile], unit: str
) -> Iterator[Note]:
    if models_differ(profiles):
        yield Note(
            code="different-models",
            message="The models are not the same: samples per second of one say little about "
            "the other.",
        )
    elif sources_differ(profiles):
        yield Note(
            code="edited-sources",
            message=f"{profiles[0].workload.model} was edited between the sweeps.",
            hint="sweep again where that changes what is computed",
        )
    if len({p.workload.mode for p in profiles}) > 1:
        yield Note(
            code="different-modes",
            message="Some profiles are of training and some of inference.",
        )
    if unit == "token":
        sizes = listing([f"{_tokens(entry):,} in {entry.label}" for entry in judged])
        yield Note(
            code="different-samples",
            message=f"Samples have different numbers of tokens ({sizes}), so tokens per second "
            "are compared.",
        )
    elif len(set(map(sample_size, profiles))) > 1:
        yield Note(code="different-samples", message="Samples do not have the same size.")
