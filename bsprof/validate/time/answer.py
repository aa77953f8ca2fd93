"""The tables of a validation of times, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from bsprof.units import format_seconds
from bsprof.validate.answer import Sheet
from bsprof.validate.scores import errors_of
from bsprof.validate.time.answer_sets import constants_sheet, sets_sheet
from bsprof.validate.time.made_of import made_of_sheet
from bsprof.validate.time.other_files import other_groups_sheet, other_summary_sheet
from bsprof.validate.time.outcomes import TimeOutcome
from bsprof.validate.time.sweeps import SweepScore, sweep_score
from bsprof.validate.time.validation import TimeValidation
from bsprof.validate.time.words import ERROR_COLUMNS, error_cells, percent, signed

WORST = 20


def sheets(validation: TimeValidation) -> list[Sheet]:
    """All tables, most important first; empty ones are left out."""
    makers: tuple[Callable[[TimeValidation], Sheet], ...] = (
        sets_sheet,
        other_summary_sheet,
        made_of_sheet,
        other_groups_sheet,
        constants_sheet,
        _groups,
        _sweeps,
        _coverage,
        _assumptions,
        _left_out,
        _worst,
    )
    return [sheet for make in makers if (sheet := make(validation)).rows]


def _groups(validation: TimeValidation) -> Sheet:
    found: dict[tuple[str, str, str, str], list[TimeOutcome]] = {}
    for outcome in validation.scored:
        case = outcome.case
        key = (case.source, case.device, case.spec.precision.value, case.family)
        found.setdefault(key, []).append(outcome)
    rows = []
    for key, outcomes in sorted(found.items()):
        errors = errors_of([o.pair for o in outcomes])
        if errors is not None:
            rows.append((*key, *error_cells(errors)))
    return Sheet(
        title="Error of times, predicted over measured",
        columns=("source", "device", "precision", "family", *ERROR_COLUMNS),
        rows=tuple(rows),
        numeric=frozenset(range(4, 11)),
    )


def _sweeps(validation: TimeValidation) -> Sheet:
    rows = [
        (
            *key,
            str(score.sizes),
            f"{score.rank:.2f}",
            f"{score.knee_steps:+d}" if score.knee_steps else "0",
        )
        for key, score in sweep_scores(validation.outcomes)
    ]
    return Sheet(
        title="Sweeps: rank correlation of throughput over sizes, and grid steps to the predicted "
        "size that reaches 90 % of the top",
        columns=("source", "device", "model", "sizes", "rank", "steps"),
        rows=tuple(rows),
        numeric=frozenset({3, 4, 5}),
    )


def sweep_scores(
    outcomes: Sequence[TimeOutcome],
) -> list[tuple[tuple[str, str, str], SweepScore]]:
    """Scores of sweeps by source, device and model; a point that calibrates is one of them."""
    found: dict[tuple[str, str, str, str], dict[int, TimeOutcome]] = {}
    for outcome in outcomes:
        case = outcome.case
        if not case.training_row:
            key = (case.source, case.device, case.model, case.sweep or case.machine)
            found.setdefault(key, {}).setdefault(case.micro_batch, outcome)
    scores = []
    for (source, device, model, _), by_size in sorted(found.items()):
        score = sweep_score(
            [(size, o.predicted.value, o.case.seconds) for size, o in by_size.items()]
        )
        if score is not None:
            scores.append(((source, device, model), score))
    return scores


def _coverage(validation: TimeValidation) -> Sheet:
    """How many of the judged rows of supported models are scored, by source."""
    sources = sorted(
        {*validation.collected.usable.values(), *(s.source for s in validation.collected.skipped)}
    )
    shares = [(source, validation.share([source])) for source in sources]
    return Sheet(
        title="Judged rows of supported models that are scored",
        columns=("source", "scored", "of", "share"),
        rows=tuple(
            (source, str(found.hits), str(found.count), percent(found.value))
            for source, found in shares
            if found.count
        ),
        numeric=frozenset({1, 2, 3}),
    )


def _assumptions(validation: TimeValidation) -> Sheet:
    return Sheet(
        title="Assumptions",
        columns=("source", "assumed"),
        rows=tuple(
            (source, text)
            for source, texts in validation.collected.assumptions.items()
            for text in texts
        ),
    )


def _left_out(validation: TimeValidation) -> Sheet:
    counted: Counter[tuple[str, str, bool]] = Counter()
    judged = validation.collected.judged
    for skipped in validation.collected.skipped:
        counted[(skipped.source, skipped.reason, skipped.counts and skipped.row in judged)] += 1
    for failed in validation.failed:
        counted[(failed.case.source, failed.reason, failed.counts)] += 1
    return Sheet(
        title="Rows that are not scored",
        columns=("source", "rows", "why", "counts against the share"),
        rows=tuple(
            (source, str(number), reason, "yes" if counts else "no")
            for (source, reason, counts), number in sorted(counted.items())
        ),
        numeric=frozenset({1}),
    )


def _worst(validation: TimeValidation) -> Sheet:
    found = sorted(validation.scored, key=lambda o: -abs(o.pair.error))
    return Sheet(
        title=f"The {WORST} worst rows and what was predicted for them",
        columns=("row", "model", "device", "size", "measured", "error", "bound by", "made of"),
        rows=tuple(
            (
                o.case.row,
                o.case.model,
                o.case.device,
                str(o.case.micro_batch),
                format_seconds(o.case.seconds),
                signed(o.pair.error),
                o.regime.value,
                made_of(o),
            )
            for o in found[:WORST]
        ),
        numeric=frozenset({3, 4, 5}),
    )


def made_of(outcome: TimeOutcome) -> str:
    """Predicted seconds by class, the largest first, and the host's."""
    parts = sorted(outcome.by_class_s.items(), key=lambda part: -part[1])[:5]
    words = [f"{name.value} {format_seconds(seconds)}" for name, seconds in parts]
    return ", ".join([*words, f"host {format_seconds(outcome.host_s)}"])
