"""The answer at the top of a report, ready to be set: on a screen, on paper."""

from __future__ import annotations

from dataclasses import dataclass

from bsprof.recommend.curve import Curve
from bsprof.recommend.infeasible import predicted_changes
from bsprof.records import DEFAULT_HEADROOM, Origin, Point, Quantity, Recommendation
from bsprof.report.data import ProfileView, ReportData
from bsprof.report.owners import owner_text
from bsprof.report.summary import recommendation_facts, recommendation_summary
from bsprof.report.tables import Table
from bsprof.report.timed import is_timed_prediction, time_facts
from bsprof.report.words import (
    PHASE_NAMES,
    best_point,
    failure_text,
    has_unequal_pieces,
    largest_fitting,
    pieces_text,
    quantity_text,
    regime_text,
    size_range_text,
    status_text,
)
from bsprof.units import format_bytes, format_count, format_seconds, format_share

OTHERS = "What it was chosen over"
"""Heading of the table of other plans."""

_SET_SMALL = ("checked", "profile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a report says first.

    Attributes:
        kicker: What it answers: `Recommended for 2,048 samples per update`.
        parts: The answer itself, set large: number and what it counts, to be multiplied.
        found: Whether there is an answer; else `parts` says in words that there is none.
        pieces: The exact pieces, where they are not all alike; else empty.
        facts: Label and text, most important first.
        small: The same, of less weight.
        memory: Share of the usable memory at the peak, 0 to 1, and the sentence about it; None
            where that is not known.
        reasons, notes: Sentences.
        others: The plans it was chosen over; None without any.
        why: What happened when nothing ran.
        tail: Last lines of the failing script then.
        next_step: A command that gives more; empty where there is none.
    """

    kicker: str
    parts: tuple[tuple[str, str], ...]
    found: bool = True
    pieces: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    small: tuple[tuple[str, str], ...] = ()
    memory: tuple[float, str] | None = None
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    others: Table | None = None
    why: str = ""
    tail: tuple[str, ...] = ()
    next_step: str = ""


def report_answer(data: ReportData) -> Answer | None:
    """The recommendation, else the best size of the one profile, else that nothing ran.

    Of a profile without times: the largest size that fits.

    None for several profiles without a recommendation: their comparison is the answer.
    """
    if data.recommendation is not None:
        return _recommended(data, data.recommendation)
    found = [view for view in data.views if best_point(view.profile) is not None]
    if not found:
        fitting = [view for view in data.views if largest_fitting(view.profile) is not None]
        if not fitting:
            return _nothing_ran(data)
        return _largest(fitting[0]) if len(data.views) == 1 else None
    return _fastest(found[0]) if len(data.views) == 1 else None


def _recommended(data: ReportData, recommendation: Recommendation) -> Answer:
    view, plan, target = data.chosen_view, recommendation.plan, recommendation.target
    profile = view.profile if view else None
    summary = recommendation_summary(recommendation, profile)
    asked = f"{target.target_batch:,} samples per update"
    if target.target_tokens is not None:
        asked = f"{target.target_tokens:,} tokens ({target.target_batch:,} samples) per update"
    where = f", from {view.label}" if view is not None and len(data.views) > 1 else ""
    steps = "accumulation step" + ("" if plan.accumulation_steps == 1 else "s")
    parts = [(f"{plan.micro_batch_size:,}", "micro-batch"), (f"{plan.accumulation_steps:,}", steps)]
    if target.world_size > 1:
        parts.append((f"{target.world_size:,}", "ranks"))
    facts = recommendation_facts(recommendation, profile)
    return Answer(
        kicker=f"Recommended for {asked}{where}",
        parts=tuple(parts),
        pieces=pieces_text(plan.pieces) if has_unequal_pieces(plan) else "",
        facts=tuple(f for f in facts if f[0] not in ("pieces", *_SET_SMALL)),
        small=tuple(f for f in facts if f[0] in _SET_SMALL),
        memory=_memory(recommendation, view),
        reasons=summary.reasons,
        notes=summary.notes,
        others=summary.table if len(summary.table.rows) > 1 else None,
    )


def _memory(recommendation: Recommendation, view: ProfileView | None) -> tuple[float, str] | None:
    used = recommendation.plan.device_used_bytes
    return None if view is None else _share_of_usable(used, view.profile.device.usable_bytes)


def _fastest(view: ProfileView) -> Answer:
    best = best_point(view.profile)
    assert best is not None, "the caller looked"
    if is_timed_prediction(view.profile):
        return _best_predicted(view, best)
    kicker = "Confirmed size" if best.confirmed else "Fastest measured size"
    facts = [
        ("samples/s", quantity_text(best.samples_per_s, format_count)),
        ("micro-step", quantity_text(best.micro_step_s, format_seconds)),
        ("peak memory", quantity_text(best.device_used_bytes, format_bytes)),
    ]
    largest = view.profile.max_micro_batch_size
    if largest is not None:
        facts.append(("largest that fits", size_range_text(largest)))
    if view.knee is not None:
        facts.append(("knee", size_range_text(view.knee)))
    return Answer(
        kicker=f"{kicker}, no target given",
        parts=((f"{best.micro_batch_size:,}", "micro-batch"),),
        facts=tuple((name, text) for name, text in facts if text),
        next_step="bsprof recommend --target-batch N",
    )


def _best_predicted(view: ProfileView, best: Point) -> Answer:
    """The predicted size to choose without a target, and how sure that is."""
    profile, used = view.profile, best.device_used_bytes
    facts = dict(time_facts(profile))
    sure = facts.pop("how sure", "")
    facts.pop("bound by", None)
    for name, rest in (("samples/s", " in "), ("knee", ", ")):
        facts[name] = facts.get(name, "").partition(rest)[0]
    facts["regime"] = f"{regime_text(best)} bound" if regime_text(best) else ""
    facts["micro-step"] = quantity_text(best.micro_step_s, format_seconds)
    facts["MFU"] = "" if best.mfu is None else quantity_text(best.mfu, format_share)
    facts["peak memory"] = quantity_text(used, format_bytes)
    if profile.max_micro_batch_size is not None:
        facts["largest that fits"] = size_range_text(profile.max_micro_batch_size)
    return Answer(
        kicker="Best predicted size, no target given",
        parts=((f"{best.micro_batch_size:,}", "micro-batch"),),
        facts=tuple((name, text) for name, text in facts.items() if text),
        small=(("how sure", sure),) if sure else (),
        memory=_share_of_usable(used, profile.device.usable_bytes),
        next_step="bsprof recommend --target-batch N",
    )


def _share_of_usable(used: Quantity | None, usable: int) -> tuple[float, str] | None:
    """What the peak takes of the usable memory, as a share and in words."""
    if used is None or usable <= 0:
        return None
    share = min(1.0, used.value / usable)
    return share, f"{format_share(share)} of {format_bytes(usable)} usable memory at the peak"


def _what_would_fit(data: ReportData, smallest: Point) -> str:
    """The predicted changes with which the smallest size fits; empty where none was predicted."""
    if len(data.views) > 1:
        return ""
    profile = data.views[0].profile
    found = predicted_changes(profile, smallest.micro_batch_size, profile.device.usable_bytes)
    return f" What would make it fit: {found}." if found else ""


def _with_headroom(view: ProfileView) -> str:
    """The largest size that leaves the usual headroom at the upper end of its memory."""
    free = 1 - DEFAULT_HEADROOM
    curve = Curve.of(view.profile)
    size = curve.largest_within(free * view.profile.device.usable_bytes)
    return "" if size is None else f"{size:,}"


def _largest(view: ProfileView) -> Answer:
    """The largest size that fits, where nothing says which is the fastest."""
    profile = view.profile
    point = largest_fitting(profile)
    assert point is not None, "the caller looked"
    used, usable = point.device_used_bytes, profile.device.usable_bytes
    facts = [
        ("memory used", quantity_text(used, format_bytes)),
        ("allocated", quantity_text(point.peak_allocated_bytes, format_bytes)),
        ("reserved", quantity_text(point.peak_reserved_bytes, format_bytes)),
        ("peak in", PHASE_NAMES[point.peak_phase] if point.peak_phase else ""),
        ("held by", owner_text(point)),
    ]
    if profile.max_micro_batch_size is not None:
        facts.append(("largest that fits", size_range_text(profile.max_micro_batch_size)))
    facts.append((f"with {format_share(DEFAULT_HEADROOM)} headroom", _with_headroom(view)))
    return Answer(
        kicker="Largest predicted size that fits, no target given",
        parts=((f"{point.micro_batch_size:,}", "micro-batch"),),
        facts=tuple((name, text) for name, text in facts if text),
        small=(("time", "none in this profile: which size is the fastest is not known"),),
        memory=_share_of_usable(used, usable),
        next_step="bsprof recommend --target-batch N",
    )


def _nothing_ran(data: ReportData) -> Answer:
    points = [p for view in data.views for p in view.profile.points]
    smallest = min(points, key=lambda p: p.micro_batch_size, default=None)
    if smallest is None:
        why = "No size was tried yet."
    else:
        reason = failure_text(smallest) or status_text(smallest)
        why = f"The smallest tried, {smallest.micro_batch_size:,}: {reason}."
        why += _what_would_fit(data, smallest)
    predicted = all(view.profile.origin is Origin.PREDICTED for view in data.views)
    return Answer(
        kicker="No answer",
        parts=(("No micro-batch size " + ("fits" if predicted else "ran"), ""),),
        found=False,
        why=why,
        tail=smallest.failure.tail if smallest is not None and smallest.failure else (),
    )
