"""Files outside the scored sets: groups of a source, a GPU and a precision, and all of them."""

from __future__ import annotations

import statistics

from bsprof.validate.answer import Sheet
from bsprof.validate.scores import errors_of
from bsprof.validate.time.bars import OTHER_FAR, OTHER_FAR_SHARE, OTHER_MEDIAN, OTHER_SCORED
from bsprof.validate.time.outcomes import TimeOutcome
from bsprof.validate.time.validation import TimeValidation
from bsprof.validate.time.words import ERROR_COLUMNS, error_cells, percent

Key = tuple[str, str, str]


def other_groups(validation: TimeValidation) -> dict[Key, list[TimeOutcome]]:
    """Scored rows of the other files by source, device and precision."""
    found: dict[Key, list[TimeOutcome]] = {}
    for outcome in validation.scored:
        case = outcome.case
        if not case.set_name:
            key = (case.source, case.device, case.spec.precision.value)
            found.setdefault(key, []).append(outcome)
    return dict(sorted(found.items()))


def other_groups_sheet(validation: TimeValidation) -> Sheet:
    """Every group."""
    rows = []
    for key, outcomes in other_groups(validation).items():
        errors = errors_of([o.pair for o in outcomes])
        if errors is not None:
            rows.append((*key, *error_cells(errors)))
    return Sheet(
        title="Other files, by group",
        columns=("source", "device", "precision", *ERROR_COLUMNS),
        rows=tuple(rows),
        numeric=frozenset(range(3, 10)),
    )


def other_summary_sheet(validation: TimeValidation) -> Sheet:
    """All groups together, against what is asked of them."""
    groups = other_groups(validation)
    medians = [
        statistics.median(abs(o.pair.error) for o in outcomes) for outcomes in groups.values()
    ]
    if not medians:
        return Sheet(title="", columns=(), rows=())
    everything = errors_of([o.pair for outcomes in groups.values() for o in outcomes])
    assert everything is not None
    middle = statistics.median(medians)
    far = sum(m > OTHER_FAR for m in medians) / len(medians)
    in_sets = {o.case.source for o in validation.outcomes if o.case.set_name}
    rest = {*validation.collected.usable.values()} | {
        s.source for s in validation.collected.skipped
    }
    share = validation.share(rest - in_sets)
    return Sheet(
        title="Other files together",
        columns=("what", "found", "asked"),
        rows=(
            ("groups", str(len(medians)), ""),
            ("median of their medians", percent(middle), f"at most {percent(OTHER_MEDIAN)}"),
            (
                f"groups above {percent(OTHER_FAR)}",
                percent(far),
                f"at most {percent(OTHER_FAR_SHARE)}",
            ),
            (
                "judged rows of supported models that are scored",
                f"{share.hits} of {share.count}, {percent(share.value)}",
                f"at least {percent(OTHER_SCORED)}",
            ),
            ("intervals hold", percent(everything.covered), ""),
            ("median full width of intervals", percent(everything.width), ""),
        ),
        numeric=frozenset({1}),
    )
