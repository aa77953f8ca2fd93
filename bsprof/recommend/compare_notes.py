"""What makes a comparison unequal, or leaves something out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bsprof.recommend.by_size import TIME_FIELD, AgainstMeasured
from bsprof.recommend.compared import ComparedProfile, tokens_of
from bsprof.recommend.differences import models_differ, sample_size, sources_differ
from bsprof.recommend.wording import listing
from bsprof.records import Note, Origin, Profile

CPU_SCATTER = 0.10
"""By how much one size differs between processes on a CPU: page faults of a heap that is laid out
by chance (a small convnet, four processes a size, two cores)."""
UNLIKE = frozenset({"different-models", "different-modes", "edited-sources", "different-samples"})
"""Codes of notes that say: this compares things that are not alike."""


def notes(
    judged: Sequence[ComparedProfile], unit: str, against: Sequence[AgainstMeasured]
) -> Iterator[Note]:
    profiles = [entry.profile for entry in judged]
    yield from _on_likeness(judged, profiles, unit)
    for pair in against:
        if not pair.same_device and pair.field != TIME_FIELD:
            names = [judged[i].profile.device.name for i in (pair.predicted, pair.measured)]
            yield Note(
                code="different-devices",
                message=f"Memory was predicted for {names[0]} and measured on {names[1]}: context "
                "and libraries differ.",
            )
    origins = {profile.origin for profile in profiles}
    if len(origins) == 1 and Origin.MEASURED not in origins:
        yield Note(
            code="not-measured", message=f"All numbers are {origins.pop()}; nothing was measured."
        )
    priced = [entry for entry in judged if entry.price_per_hour is not None]
    if priced and len(priced) < len(judged):
        left = listing([e.label for e in judged if e.price_per_hour is None])
        yield Note(
            code="no-price",
            message=f"No price was given for {left}.",
            hint="add --price DEVICE=AMOUNT for each to rank them by cost",
        )
    for entry in judged:
        if entry.error is not None:
            yield Note(
                code="no-answer",
                message=f"{entry.label}: {entry.error.doing}",
                hint=entry.error.next_step,
            )
        if Origin.MEASURED in origins and entry.profile.origin is not Origin.MEASURED:
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
        sizes = listing([f"{tokens_of(entry):,} in {entry.label}" for entry in judged])
        yield Note(
            code="different-samples",
            message=f"Samples have different numbers of tokens ({sizes}), so tokens per second "
            "are compared.",
        )
    elif len(set(map(sample_size, profiles))) > 1:
        yield Note(code="different-samples", message="Samples do not have the same size.")
