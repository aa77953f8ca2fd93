"""A comparison of profiles as a table and a summary; pure Python, nothing drawn."""

from __future__ import annotations

from collections.abc import Callable

from bsprof.recommend.compared import ComparedProfile, Comparison
from bsprof.recommend.ranking import RankedBy, Ranking
from bsprof.recommend.verdicts import error_text
from bsprof.recommend.wording import plural, three_digits, with_interval
from bsprof.records import Mode, Origin, Plan, Profile, Regime
from bsprof.report.by_size import memory_table, time_table
from bsprof.report.summary import Summary
from bsprof.report.tables import Column, Emphasis, Row, Table
from bsprof.report.words import joules, note_text, quantity_text, size_range_text
from bsprof.units import format_bytes, format_count, format_seconds, format_share


def comparison_summary(comparison: Comparison) -> Summary:
    """What `bsprof compare` answers: the verdicts, what is the same, and the table."""
    verdicts = [entry.verdict for entry in comparison.profiles if entry.verdict]
    verdicts += [error_text(comparison.profiles, pair) for pair in comparison.against]
    facts = [("verdict", verdict) for verdict in verdicts if verdict != comparison.title]
    facts += [
        (f"ranked by {r.by}", _ranking_text(comparison, r))
        for r in comparison.rankings
        if r.by is RankedBy.COST or not _all_measured(comparison)
    ]
    facts.append(("compared", compared_text(comparison)))
    same = _same_text(comparison)
    if same:
        facts.append(("same in all", same))
    return Summary(
        title=comparison.title,
        facts=tuple(facts),
        reasons=(),
        table=comparison_table(comparison),
        notes=tuple(note_text(note) for note in comparison.notes),
        more=tuple(t for t in (time_table(comparison), memory_table(comparison)) if t is not None),
    )


def _all_measured(comparison: Comparison) -> bool:
    return all(e.profile.origin is Origin.MEASURED for e in comparison.profiles)


def _ranking_text(comparison: Comparison, ranking: Ranking) -> str:
    """The order, and how likely it is right."""
    names = ", ".join(comparison.profiles[i].label for i in ranking.order)
    first, whole = format_share(ranking.first_is_right), format_share(ranking.order_is_right)
    if len(ranking.order) == 2:
        return f"{names} (the order is right with probability {whole})"
    return f"{names} (the first is right with probability {first}, the whole order {whole})"


def compared_text(comparison: Comparison) -> str:
    """What the rates are of: plans for a target, or micro-steps of the fastest sizes."""
    if not comparison.has_target:
        untimed = [entry for entry in comparison.profiles if entry.rate_per_s is None]
        if len(untimed) == len(comparison.profiles):
            return "the largest size of each that leaves 5 % of its memory free"
        if _all_infer(comparison):
            return "the fastest size of each, by its forward pass"
        rest = "; where no time is known, the largest that leaves 5 % of memory free"
        return (
            "the fastest size of each, by micro-steps alone: what many accumulation steps approach"
            + (rest if untimed and not any(entry.error for entry in untimed) else "")
        )
    if comparison.target_tokens is not None:
        amount = plural(comparison.target_tokens, "token")
    else:
        amount = plural(comparison.target_batch or 0, "sample")
    ranks = comparison.world_size
    where = f" over {plural(ranks, 'rank')}" if ranks > 1 else ""
    return f"the recommended plans for {amount} per update{where}"


def comparison_table(comparison: Comparison) -> Table:
    """Side by side: a column per profile, what differs between them first."""
    unit, update = f"{comparison.unit}s/s", "update"
    if not comparison.has_target:
        infer = _all_infer(comparison)
        unit = unit if infer else f"{unit} in micro-steps"
        update = "forward pass" if infer else "update of one micro-batch"
    ratio = f"ratio to {_base(comparison)}"
    questions: tuple[tuple[str, Callable[[ComparedProfile], str]], ...] = (
        ("micro-batch", _of_plan(_size)),
        ("accumulation steps", _of_plan(lambda plan: f"{plan.accumulation_steps:,}")),
        (update, _of_plan(lambda plan: quantity_text(plan.step_time_s, format_seconds))),
        (unit, lambda entry: quantity_text(entry.rate_per_s, format_count)),
        (ratio, _ratio),
        (
            f"cost of a million {comparison.unit}s",
            lambda entry: quantity_text(entry.cost_per_million, three_digits),
        ),
        ("price of an hour", _price),
        ("peak memory", _of_plan(lambda p: quantity_text(p.device_used_bytes, format_bytes))),
        ("energy of an update", _of_plan(lambda p: quantity_text(p.energy_j, joules))),
        ("usable memory", lambda entry: format_bytes(entry.profile.device.usable_bytes)),
        ("largest that fits", lambda entry: _largest(entry.profile)),
        ("knee", lambda entry: "" if entry.knee is None else size_range_text(entry.knee)),
        ("regime", _of_plan(lambda p: "" if p.regime is Regime.UNKNOWN else f"{p.regime} bound")),
        ("checked", _checked),
        ("profile", lambda entry: "" if entry.name == entry.label else entry.name),
    )
    rows = [
        Row(cells=(difference.name, *difference.values)) for difference in comparison.differences
    ]
    for name, write in questions:
        cells = tuple(write(entry) for entry in comparison.profiles)
        if any(cells) and not (name == "accumulation steps" and not comparison.has_target):
            emphasis = Emphasis.CHOSEN if name == ratio else Emphasis.NONE
            rows.append(Row(cells=(name, *cells), emphasis=emphasis))
    return Table(
        caption="Side by side",
        columns=(
            Column(key="what", title="what", meaning="What is compared.", numeric=False),
            *(
                Column(
                    key=f"profile{number}",
                    title=entry.label,
                    meaning=entry.name or entry.label,
                    numeric=False,
                )
                for number, entry in enumerate(comparison.profiles, start=1)
            ),
        ),
        rows=tuple(rows),
    )


def _of_plan(write: Callable[[Plan], str]) -> Callable[[ComparedProfile], str]:
    return lambda entry: "" if entry.plan is None else write(entry.plan)


def _size(plan: Plan) -> str:
    return f"{plan.micro_batch_size:,}" + (" (interpolated)" if plan.interpolated else "")


def _ratio(entry: ComparedProfile) -> str:
    if entry.error is not None:
        return "no answer"
    if entry.ratio is None:
        return ""
    return with_interval(entry.ratio, three_digits) if entry.verdict else "1"


def _price(entry: ComparedProfile) -> str:
    return "" if entry.price_per_hour is None else three_digits(entry.price_per_hour)


def _largest(profile: Profile) -> str:
    largest = profile.max_micro_batch_size
    return "" if largest is None else size_range_text(largest)


def _checked(entry: ComparedProfile) -> str:
    if entry.plan is None:
        return ""
    if entry.profile.origin is not Origin.MEASURED:
        return str(entry.profile.origin)
    if entry.plan.confirmed:
        return "ran again, fitted"
    return "not measured" if entry.plan.interpolated else "measured once"


def _base(comparison: Comparison) -> str:
    """The profile that the ratios are to."""
    answered = [entry for entry in comparison.profiles if entry.rate_per_s is not None]
    if not answered or answered[0] is comparison.profiles[0]:
        return "the first"
    return answered[0].label


def _all_infer(comparison: Comparison) -> bool:
    return all(entry.profile.workload.mode is Mode.INFER for entry in comparison.profiles)


def _same_text(comparison: Comparison) -> str:
    """Model, device, precision and optimizer, as far as they are the same in all."""
    profile = comparison.profiles[0].profile
    spec, differing = profile.workload, {d.name for d in comparison.differences}
    values = {
        "model": spec.model,
        "precision": str(spec.precision),
        "optimizer": spec.optimizer if spec.mode == "train" else "",
        "mode": "" if spec.mode == "train" else "inference",
        "device": profile.device.name or profile.device.kind,
    }
    return ", ".join(text for name, text in values.items() if text and name not in differing)
