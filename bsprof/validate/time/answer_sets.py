"""The table of scored sets: errors against their bars, and the data sheet's roofline beside."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bsprof.validate.answer import Sheet
from bsprof.validate.scores import Errors, Pair, errors_of
from bsprof.validate.time.bars import BARS, COVERED, WIDTH, Bar
from bsprof.validate.time.constants import CONSTANTS, fitted_constants
from bsprof.validate.time.datasheet import constant, kind_of
from bsprof.validate.time.outcomes import TimeOutcome
from bsprof.validate.time.validation import TimeValidation
from bsprof.validate.time.words import percent, signed


def sets_sheet(validation: TimeValidation) -> Sheet:
    """Every set with scored rows; those without a bar come last."""
    by_set: dict[str, list[TimeOutcome]] = {}
    for outcome in validation.scored:
        if outcome.set_name:
            by_set.setdefault(outcome.set_name, []).append(outcome)
    named = {name for bar in BARS for name in bar.sets}
    rows = []
    for bar in (*BARS, *(Bar(title=n, sets=(n,)) for n in sorted(by_set) if n not in named)):
        outcomes = [o for name in bar.sets for o in by_set.get(name, ())]
        if outcomes:
            rows.append(_row(bar, outcomes))
    return Sheet(
        title="Sets: error of times (mean, median, 90th percentile), and the same of the data "
        "sheet's roofline, of it times one constant, and of it times a constant of the set itself",
        columns=(
            "set",
            "rows",
            "mean",
            "median",
            "90th",
            "signed",
            "covered",
            "width",
            "asked",
            "met",
            "data sheet",
            "times one constant",
            "times its own",
        ),
        rows=tuple(rows),
        numeric=frozenset({1, 2, 3, 4, 5, 6, 7}),
    )


def constants_sheet(validation: TimeValidation) -> Sheet:
    """The constants, and what the rows at hand that fit would make of them."""
    here = fitted_constants(validation.outcomes)
    return Sheet(
        title="The constants, and the medians of the rows here that are fitted on",
        columns=("precision", "constant", "here"),
        rows=tuple((kind, f"{CONSTANTS[kind]:.2f}", f"{here[kind]:.2f}") for kind in here),
        numeric=frozenset({1, 2}),
    )


def _row(bar: Bar, outcomes: Sequence[TimeOutcome]) -> tuple[str, ...]:
    pairs = [o.pair for o in outcomes]
    errors = errors_of(pairs)
    assert errors is not None
    mean = statistics.mean(abs(pair.error) for pair in pairs)
    kinds = [kind_of(o.case.spec.precision) for o in outcomes]
    scaled = [o.sheet_pair(CONSTANTS[kind]) for o, kind in zip(outcomes, kinds, strict=True)]
    own = constant(o.case.seconds / o.sheet_s for o in outcomes if o.sheet_s) or 1.0
    beaten = errors_of(scaled)
    used = sorted({f"{CONSTANTS[kind]:.2f}" for kind in kinds})
    return (
        bar.title,
        str(errors.count),
        percent(mean),
        percent(errors.median),
        percent(errors.ninetieth),
        signed(errors.signed),
        percent(errors.covered),
        percent(errors.width),
        _asked(bar),
        _met(bar, mean, errors, beaten),
        _short([o.sheet_pair() for o in outcomes]),
        f"{_short(scaled)} ({', '.join(used)})",
        f"{_short([o.sheet_pair(own) for o in outcomes])} ({own:.2f})",
    )


def _short(pairs: Sequence[Pair]) -> str:
    errors = errors_of(pairs)
    assert errors is not None
    return f"{100 * errors.median:.1f}/{100 * errors.ninetieth:.0f}/{100 * errors.signed:+.0f}"


def _asked(bar: Bar) -> str:
    parts = [
        f"{name} {100 * value:g}"
        for name, value in (
            ("mean", bar.mean),
            ("median", bar.median),
            ("90th", bar.ninetieth),
        )
        if value is not None
    ]
    return ", ".join(parts)


def _met(bar: Bar, mean: float, errors: Errors, beaten: Errors | None) -> str:
    """What of the bar is met; in words what is not."""
    missed = [
        name
        for name, value, most in (
            ("mean", mean, bar.mean),
            ("median", errors.median, bar.median),
            ("90th", errors.ninetieth, bar.ninetieth),
        )
        if most is not None and value > most
    ]
    if not COVERED[0] <= errors.covered <= COVERED[1]:
        missed.append("covered")
    if errors.width > WIDTH:
        missed.append("width")
    if beaten is not None and errors.median > beaten.median:
        missed.append("constant")
    return "yes" if not missed else f"not {', '.join(missed)}"
