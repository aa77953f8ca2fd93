"""Why this plan, where only memory is known: nothing here may say that one is faster."""

from __future__ import annotations

from collections.abc import Iterator

from bsprof.recommend.candidates import Candidate
from bsprof.recommend.fewest_steps import SAME_MEMORY
from bsprof.recommend.reasons import Ground, memory_sentence, what_to_run
from bsprof.recommend.wording import OUTCOMES, PREDICTED_OUTCOMES, plural
from bsprof.records import Objective, Phase, Point, ranked_shares
from bsprof.units import format_bytes, format_count, format_share

_PHASES = {
    Phase.FORWARD_BACKWARD: "forward and backward",
    Phase.ACCUMULATION: "accumulation, with the gradients of earlier micro-steps kept",
    Phase.OPTIMIZER_STEP: "the optimizer step",
    Phase.FORWARD: "forward",
}


def reasons(ground: Ground) -> tuple[str, ...]:
    """The sentences, most important first."""
    return tuple(sentence for sentence in _sentences(ground) if sentence)


def reason_against(ground: Ground, other: Candidate) -> str:
    """Why another candidate was not chosen, one sentence."""
    chosen = ground.choice.chosen
    if other in ground.choice.too_large:
        return (
            f"Needs up to {format_bytes(other.ceiling_bytes)}, and the headroom leaves "
            f"{format_bytes(ground.limit_bytes)}."
        )
    steps, fewest = other.accumulation_steps, chosen.accumulation_steps
    if steps > fewest:
        return f"Takes {plural(steps, ground.step)} where {fewest:,} do."
    if steps < fewest:
        return "Takes fewer, but needs more memory."
    if other.shapes > chosen.shapes:
        return f"Takes as many, but not all of one size ({other.shapes} different ones)."
    return "Takes as many, but needs more memory."


def _sentences(ground: Ground) -> Iterator[str]:
    yield f"{what_to_run(ground)}."
    yield _why(ground)
    yield memory_sentence(ground)
    yield _owner(ground)
    yield _next_larger(ground)
    yield _time(ground)
    yield _trust(ground)


def _why(ground: Ground) -> str:
    choice, chosen = ground.choice, ground.choice.chosen
    size, few = chosen.micro_batch_size, plural(chosen.accumulation_steps, ground.step)
    if len(choice.fitting) == 1:
        return f"{size} is the only size that answers the question within the memory limit."
    if ground.target.objective is Objective.MEMORY:
        return (
            f"Of the sizes that need the least memory, to within {format_share(SAME_MEMORY)}, "
            f"{size} takes the fewest: {few}."
        )
    largest = choice.fitting[-1]
    if chosen is largest:
        kind = "" if ground.plan.interpolated else f"{ground.found} "
        return (
            f"{size} is the largest {kind}size that leaves the headroom, and so takes the fewest: "
            f"{few}."
        )
    why = "in pieces of one size" if chosen.shapes < largest.shapes else "with less memory"
    return (
        f"{few} is the fewest that leave the headroom: {largest.micro_batch_size} fits as well, "
        f"but {size} does it {why}."
    )


def _owner(ground: Ground) -> str:
    """Where memory peaks and what holds most of it."""
    point = ground.profile.point(ground.plan.micro_batch_size)
    if point is None:
        return ""
    parts = []
    if point.peak_phase is not None and not ground.infers:
        parts.append(f"it peaks in {_PHASES[point.peak_phase]}")
    share = _largest_share(point)
    if share:
        parts.append(share)
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _largest_share(point: Point) -> str:
    ranked = ranked_shares(point.peak_by_category_bytes)
    if not ranked:
        return ""
    category, share = ranked[0]
    return f"{format_share(share)} of the bytes that are live then are {category.words}"


def _next_larger(ground: Ground) -> str:
    size, share = ground.plan.micro_batch_size, ground.splitting.largest_share
    if share is not None and size == share:
        per_rank = " of a rank" if ground.target.world_size > 1 else ""
        return f"No larger micro-batch is possible: {size} is the whole {ground.whole}{per_rank}."
    larger = [p for p in ground.profile.points if p.micro_batch_size > size]
    if not larger:
        return f"No larger size was {ground.found}."
    point = min(larger, key=lambda p: p.micro_batch_size)
    name = f"The next larger size, {point.micro_batch_size},"
    curve = ground.splitting.curve
    if point.micro_batch_size not in curve.points:
        outcomes = PREDICTED_OUTCOMES if ground.is_predicted else OUTCOMES
        return f"{name} {outcomes[point.status]}{_largest_at_all(ground)}."
    ceiling = curve.ceiling_bytes(point.micro_batch_size)
    if ceiling > ground.limit_bytes:
        return (
            f"{name} needs up to {format_bytes(ceiling)}, and the headroom leaves "
            f"{format_bytes(ground.limit_bytes)}."
        )
    return f"{name} fits as well, with up to {format_bytes(ceiling)}."


def _largest_at_all(ground: Ground) -> str:
    """What is known of the sizes up to the one that does not fit."""
    most = ground.profile.max_micro_batch_size
    if most is None or most.value <= ground.plan.micro_batch_size:
        return ""
    return f"; with no headroom about {format_count(most.value)} would fit"


def _time(ground: Ground) -> str:
    rule = "the largest micro-batch that fits is often not the fastest"
    if ground.target.objective is Objective.MEMORY:
        rule = "how much slower this is than a larger micro-batch is not known"
    return f"The profile holds no time: {rule}."


def _trust(ground: Ground) -> str:
    used, held = ground.plan.device_used_bytes, "its upper end was held against the limit"
    if used is None:
        return f"How sure: these numbers are {ground.profile.origin}; nothing was run."
    return (
        f"How sure: the peak is {ground.profile.origin}, to within "
        f"{format_share(used.relative_width / 2)} (90 % interval), and {held}; nothing was run."
    )
