"""What errors of a set are made of: which class's time would have to change, and by how much."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bsprof.accounting.work import WorkClass
from bsprof.validate.answer import Sheet
from bsprof.validate.time.outcomes import TimeOutcome
from bsprof.validate.time.validation import TimeValidation
from bsprof.validate.time.words import percent

LEAST_SHARE = 0.03
"""Of a set's predicted seconds: smaller classes cannot explain an error."""
MOST_CLASSES = 5


def made_of_sheet(validation: TimeValidation) -> Sheet:
    """For each set and its heaviest classes: the factor that would centre it, and what remains."""
    by_set: dict[str, list[TimeOutcome]] = {}
    for outcome in validation.scored:
        name = outcome.set_name or f"{outcome.case.source} (other)"
        by_set.setdefault(name, []).append(outcome)
    rows = []
    for name, outcomes in sorted(by_set.items()):
        rows += [(name, *part) for part in blamed(outcomes)]
    return Sheet(
        title="What errors are made of: the factor on one class of work that would leave the least "
        "error, and that error",
        columns=("set", "class", "share of time", "factor", "median now", "median then"),
        rows=tuple(rows),
        numeric=frozenset({2, 3, 4, 5}),
    )


def blamed(outcomes: Sequence[TimeOutcome]) -> list[tuple[str, str, str, str, str]]:
    """Classes by what a factor on them would leave, the least first."""
    total = sum(o.device_s / o.case.seconds for o in outcomes)
    classes = {name for o in outcomes for name in o.by_class_s}
    now = _median(outcomes, None, 1.0)
    found = []
    for name in classes:
        share = sum(o.by_class_s.get(name, 0.0) / o.case.seconds for o in outcomes) / total
        if share >= LEAST_SHARE:
            then, factor = min((_median(outcomes, name, f), f) for f in _FACTORS)
            found.append((then, -share, name.value, share, factor))
    return [
        (name, percent(share), f"{factor:.2f}", percent(now), percent(then))
        for then, _, name, share, factor in sorted(found)[:MOST_CLASSES]
    ]


_FACTORS = tuple(1.1**n for n in range(-12, 15))


def _median(outcomes: Sequence[TimeOutcome], name: WorkClass | None, factor: float) -> float:
    """Median absolute error with one class's seconds times a factor."""
    errors = []
    for o in outcomes:
        changed = 0.0 if name is None else (factor - 1) * o.by_class_s.get(name, 0.0)
        errors.append(abs((o.predicted.value + changed) / o.case.seconds - 1))
    return statistics.median(errors)
