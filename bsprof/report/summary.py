"""A profile or a recommendation as facts, sentences and a table, for a terminal; nothing drawn.

Pure Python and light: `bsprof recommend` answers through this without loading numpy or torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from bsprof.recommend.wording import rules_text
from bsprof.records import Origin, Point, Profile, Recommendation, Regime
from bsprof.report.loading import loader_fact
from bsprof.report.predicted import changes_table
from bsprof.report.tables import Table, alternative_table, point_table
from bsprof.report.timed import is_timed_prediction, provenance_sentences, time_facts
from bsprof.report.words import (
    best_point,
    counts_text,
    device_text,
    has_unequal_pieces,
    joules,
    largest_fitting,
    note_text,
    origin_text,
    pieces_text,
    plan_text,
    quantity_text,
    size_range_text,
    workload_text,
)
from bsprof.units import format_bytes, format_count, format_seconds, format_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What to show, in reading order.

    Attributes:
        title: The answer in one line.
        facts: Label and text, most important first.
        reasons: Plain sentences that say why; empty for a profile.
        table: All points of a profile, or the plans of a recommendation.
        notes: Warnings and remarks, one line each.
        more: Further tables.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    reasons: tuple[str, ...]
    table: Table
    notes: tuple[str, ...]
    more: tuple[Table, ...] = ()


def profile_summary(name: str, profile: Profile, *, detailed: bool = False) -> Summary:
    """What a sweep found.

    Args:
        name: The profile's name in the store; empty when it has none.
        profile: The profile, whatever its state: without a usable point it says so.
        detailed: Whether to say what predicted times are made of, and where they come from.
    """
    best, largest = best_point(profile), largest_fitting(profile)
    if best is None and largest is not None:
        most = profile.max_micro_batch_size
        size = size_range_text(most) if most else f"{largest.micro_batch_size:,}"
        title = (
            f"{profile.workload.model}: the largest micro-batch that fits is {size}; "
            "the profile holds no time"
        )
    elif best is None:
        done = "fits" if profile.origin is Origin.PREDICTED else "ran"
        title = f"{profile.workload.model}: no micro-batch size {done}"
    elif is_timed_prediction(profile) and best.micro_step_s is not None:
        rate = format_count(best.micro_batch_size / best.micro_step_s.value)
        title = (
            f"{profile.workload.model}: micro-batch {best.micro_batch_size:,} is predicted best, "
            f"{rate} samples/s in micro-steps"
        )
    else:
        # Only a confirmed size was chosen under the tie rule; the other is plainly the fastest.
        found = "confirmed size" if best.confirmed else "fastest size"
        rate = format_count(best.samples_per_s.value) if best.samples_per_s else "unknown"
        title = (
            f"{profile.workload.model}: {found} {best.micro_batch_size:,}, "
            f"{rate} samples/s with accumulation of one"
        )
    return Summary(
        title=title,
        facts=(*time_facts(profile), *profile_facts(name, profile)),
        reasons=provenance_sentences(profile) if detailed else (),
        table=point_table(profile, best.micro_batch_size if best else None),
        notes=tuple(note_text(note) for note in profile.notes),
        more=tuple(t for t in (*_details(profile, best, detailed), changes_table(profile)) if t),
    )


def _details(profile: Profile, best: Point | None, detailed: bool) -> tuple[Table | None, ...]:
    """What predicted times are made of."""
    if not detailed:
        return ()
    from bsprof.report.time_classes import class_table, heaviest_table  # asked for, or not loaded

    size = best.micro_batch_size if best else None
    return class_table(profile, size), heaviest_table(profile, size)


def recommendation_summary(
    recommendation: Recommendation, profile: Profile | None = None
) -> Summary:
    """The recommended plan and why.

    Args:
        recommendation: The answer.
        profile: The profile it was read from, for the memory limit and tokens per second; None
            leaves those out.
    """
    notes = (*recommendation.advice, *recommendation.notes)
    return Summary(
        title=plan_text(recommendation),
        facts=recommendation_facts(recommendation, profile),
        reasons=recommendation.reasons,
        table=alternative_table(recommendation),
        notes=tuple(note_text(note) for note in notes),
    )


def profile_facts(name: str, profile: Profile) -> tuple[tuple[str, str], ...]:
    """Label and text: what was run, where, when, how it ended and what the limits are."""
    device, facts = profile.device, profile.facts
    where = "predicted for" if profile.origin is Origin.PREDICTED else "device"
    lines = [("workload", workload_text(profile.workload)), (where, device_text(device))]
    if rules := rules_text(profile):
        lines.append(("with the rules of", rules))
    if facts is not None:
        lines.append(("parameters", f"{facts.parameter_count:,}"))
    lines.append(("points", counts_text(profile)))
    if profile.max_micro_batch_size is not None:
        lines.append(("largest that fits", size_range_text(profile.max_micro_batch_size)))
    if loader := loader_fact(profile):
        lines.append(("loader", loader))
    limit = f"{format_bytes(device.usable_bytes)} of {format_bytes(device.capacity_bytes)}"
    lines.append(("usable memory", f"{limit} ({device.limit_source})"))
    if profile.ranks > 1:
        lines.append(("ranks", f"{profile.ranks} ({profile.parallel})"))
    when = f"{profile.created_at}, {format_seconds(profile.duration_s)}"
    lines.append((origin_text(profile), when if profile.duration_s else profile.created_at))
    if name:
        lines.append(("profile", name))
    return tuple(lines)


def recommendation_facts(
    recommendation: Recommendation, profile: Profile | None
) -> tuple[tuple[str, str], ...]:
    """Label and text: target, time, rate, memory, regime and knee of the recommended plan."""
    plan, target = recommendation.plan, recommendation.target
    lines = [("effective batch", _effective_text(recommendation))]
    if has_unequal_pieces(plan):
        lines.append(("pieces", pieces_text(plan.pieces)))
    if plan.step_time_s is not None:
        lines.append(("update", quantity_text(plan.step_time_s, format_seconds)))
    tokens = profile.facts.tokens_per_sample if profile and profile.facts else None
    if plan.samples_per_s is not None:
        rate = quantity_text(plan.samples_per_s, format_count)
        lines.append(("samples/s", rate + (" over all ranks" if target.world_size > 1 else "")))
        if tokens:
            per_second = plan.samples_per_s.scaled(tokens)
            lines.append(("tokens/s", quantity_text(per_second, format_count)))
    if plan.device_used_bytes is not None:
        used = quantity_text(plan.device_used_bytes, format_bytes)
        of_all = f" of {format_bytes(profile.device.usable_bytes)} usable" if profile else ""
        lines.append(("peak memory", used + of_all))
    if plan.energy_j is not None:
        lines.append(("energy", f"{quantity_text(plan.energy_j, joules)} per update"))
    if plan.headroom_bytes is not None:
        lines.append(("headroom", _headroom_text(recommendation)))
    if plan.regime is not Regime.UNKNOWN:
        lines.append(("regime", f"{plan.regime} bound"))
    if recommendation.knee is not None:
        lines.append(("knee", size_range_text(recommendation.knee)))
    lines.append(("checked", _checked_text(recommendation, profile)))
    if recommendation.profile:
        lines.append(("profile", recommendation.profile))
    return tuple(lines)


def _effective_text(recommendation: Recommendation) -> str:
    plan, target = recommendation.plan, recommendation.target
    off = plan.effective_batch_size - target.target_batch
    text = f"{plan.effective_batch_size:,}" + (f", {off:+,} off target" if off else ", exact")
    if target.target_tokens is not None:
        text += f" (target {target.target_tokens:,} tokens)"
    return text


def _headroom_text(recommendation: Recommendation) -> str:
    target = recommendation.target
    asked = (
        format_share(target.headroom_share)
        if target.headroom_bytes is None
        else format_bytes(target.headroom_bytes)
    )
    return f"{format_bytes(recommendation.plan.headroom_bytes or 0)} free, {asked} asked"


def _checked_text(recommendation: Recommendation, profile: Profile | None) -> str:
    if profile is not None and profile.origin is Origin.PREDICTED:
        how = ", between predicted sizes" if recommendation.plan.interpolated else ""
        return f"no: predicted{how}, and not run"
    if recommendation.plan.confirmed:
        return "ran again in a fresh process and fitted"
    if recommendation.plan.interpolated:
        return "no: interpolated between measured sizes"
    return "measured once, not run again in a fresh process"
