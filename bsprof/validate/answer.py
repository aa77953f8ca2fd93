"""The tables of a validation, as text: scores, verdicts, assumptions, rows left out, worst."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bsprof.units import format_bytes
from bsprof.validate.collect import Collected
from bsprof.validate.outcomes import Outcome, Unpredicted
from bsprof.validate.scores import (
    BracketAnswer,
    Errors,
    Pair,
    Share,
    bracket_score,
    errors_of,
    fitted_offset,
    limit_shares,
    peak_shares,
    slope_pairs,
)

WORST = 20
SMALL_FAMILY = 5
"""Families with fewer models are told together."""
OTHERS = "(small families)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One table of text.

    Attributes:
        title: A few words.
        columns: Titles.
        rows: Cells.
        numeric: Columns that are right-aligned.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """All that came of a validation.

    Attributes:
        outcomes: Predicted cases.
        failed: Cases that could not be predicted.
        stopped: Whether it was ended early; the tables are of what was done.
    """

    collected: Collected
    outcomes: tuple[Outcome, ...]
    failed: tuple[Unpredicted, ...]
    stopped: bool = False

    @property
    def pairs(self) -> list[Pair]:
        """Of all outcomes that have one."""
        return [pair for o in self.outcomes if (pair := o.pair) is not None]

    @property
    def answers(self) -> list[BracketAnswer]:
        """Of all outcomes that have one."""
        return [o.answer for o in self.outcomes if o.answer is not None]

    def scored(self) -> Share:
        """Rows that are scored, of those that should be."""
        due = [s for s in self.collected.skipped if s.counts]
        done = len(self.outcomes)
        return Share(hits=done, count=done + len(self.failed) + len(due))


def sheets(validation: Validation) -> list[Sheet]:
    """All tables, most important first; empty ones are left out."""
    makers: tuple[Callable[[Validation], Sheet], ...] = (
        _peaks,
        _offsets,
        _brackets,
        _verdicts,
        _families,
        _coverage,
        _assumptions,
        _left_out,
        _worst,
        _misses,
    )
    return [sheet for make in makers if (sheet := make(validation)).rows]


_ERROR_COLUMNS = ("rows", "median", "90th", "signed", "covered", "width", "too low")


def _cells(errors: Errors) -> tuple[str, ...]:
    return (
        str(errors.count),
        _percent(errors.median),
        _percent(errors.ninetieth),
        _signed(errors.signed),
        _percent(errors.covered),
        _percent(errors.width),
        _percent(errors.too_low),
    )


def _groups(outcomes: Sequence[Outcome]) -> dict[tuple[str, str, str], list[Pair]]:
    """Pairs by source, device and quantity."""
    found: dict[tuple[str, str, str], list[Pair]] = {}
    for outcome in outcomes:
        pair, measured = outcome.pair, outcome.case.measured
        if pair is not None and measured is not None:
            case = outcome.case
            found.setdefault((case.source, case.device, measured.kind.value), []).append(pair)
    return found


def _peaks(validation: Validation) -> Sheet:
    rows = []
    for key, pairs in sorted(_groups(validation.outcomes).items()):
        for what, chosen in (("peak", pairs), ("per sample", slope_pairs(pairs))):
            errors = errors_of(chosen)
            if errors is not None:
                rows.append((*key, what, *_cells(errors)))
    return Sheet(
        title="Error of peaks, predicted over measured",
        columns=("source", "device", "quantity", "of", *_ERROR_COLUMNS),
        rows=tuple(rows),
        numeric=frozenset(range(4, 11)),
    )


def _offsets(validation: Validation) -> Sheet:
    """One constant a source, where the whole device was read."""
    rows = []
    for key, pairs in sorted(_groups(validation.outcomes).items()):
        offset = fitted_offset(pairs) if key[2] == "device" else None
        if offset is None:
            continue
        constant = format_bytes(abs(offset.bytes))
        sign = "-" if offset.bytes < 0 else ""
        for what, errors in (("peak", offset.scored), ("per sample", offset.slopes)):
            if errors is not None:
                rows.append((*key, f"{sign}{constant}", what, *_cells(errors)))
    return Sheet(
        title="The same with one constant a source, fitted on half of the models, scored on the "
        "others; it is used nowhere else",
        columns=("source", "device", "quantity", "constant", "of", *_ERROR_COLUMNS),
        rows=tuple(rows),
        numeric=frozenset({3, *range(5, 12)}),
    )


def _brackets(validation: Validation) -> Sheet:
    groups: dict[tuple[str, str, str], list[BracketAnswer]] = {}
    for outcome in validation.outcomes:
        if outcome.answer is not None:
            case = outcome.case
            layout = "NHWC" if case.spec.channels_last else "NCHW"
            groups.setdefault((case.source, case.device, layout), []).append(outcome.answer)
    rows = []
    for key, answers in sorted(groups.items()):
        score = bracket_score(answers)
        if score is None:
            continue
        top = [a for a in answers if a.fails is None]
        rows.append(
            (
                *key,
                str(score.count),
                _percent(score.inside_share),
                _percent(score.optimistic_share),
                str(score.inside),
                f"{score.optimistic} ({score.near_optimistic})",
                f"{score.pessimistic} ({score.near_pessimistic})",
                f"{sum(a.lower_fits is False for a in top)} of {len(top)}",
            )
        )
    return Sheet(
        title="Largest size against published brackets (near misses, under 2 % of the peak, in "
        "brackets; they count as inside)",
        columns=(
            "source",
            "device",
            "layout",
            "brackets",
            "inside",
            "optimistic",
            "strictly inside",
            "above",
            "below",
            "open above, does not fit",
        ),
        rows=tuple(rows),
        numeric=frozenset(range(3, 10)),
    )


def _verdicts(validation: Validation) -> Sheet:
    shares = {**limit_shares(validation.answers), **peak_shares(validation.pairs)}
    return Sheet(
        title="Verdicts",
        columns=("what", "how often", "of", "share"),
        rows=tuple(
            (what, str(found.hits), str(found.count), _percent(found.value))
            for what, found in shares.items()
            if found.count
        ),
        numeric=frozenset({1, 2, 3}),
    )


def _families(validation: Validation) -> Sheet:
    """Errors and brackets by family, small ones together."""
    found: dict[str, dict[str, list[Outcome]]] = {}
    for outcome in validation.outcomes:
        case = outcome.case
        found.setdefault(case.source, {}).setdefault(case.family, []).append(outcome)
    rows = []
    for source, families in sorted(found.items()):
        merged: dict[str, list[Outcome]] = {}
        for family, outcomes in sorted(families.items()):
            models = {o.case.model for o in outcomes}
            name = family if len(models) >= SMALL_FAMILY else OTHERS
            merged.setdefault(name, []).extend(outcomes)
        for family, outcomes in merged.items():
            errors = errors_of([pair for o in outcomes if (pair := o.pair) is not None])
            score = bracket_score(o.answer for o in outcomes if o.answer is not None)
            rows.append(
                (
                    source,
                    family,
                    str(len({o.case.model for o in outcomes})),
                    _percent(errors.median) if errors else "",
                    _signed(errors.signed) if errors else "",
                    _percent(score.inside_share) if score else "",
                    _percent(score.optimistic_share) if score else "",
                )
            )
    return Sheet(
        title="By family",
        columns=("source", "family", "models", "median", "signed", "inside", "optimistic"),
        rows=tuple(rows),
        numeric=frozenset(range(2, 7)),
    )


def _coverage(validation: Validation) -> Sheet:
    """How many of the rows that should be scored are, by source."""
    done = Counter(outcome.case.source for outcome in validation.outcomes)
    due = Counter(done)
    due.update(failed.case.source for failed in validation.failed)
    due.update(skipped.source for skipped in validation.collected.skipped if skipped.counts)
    shares = {source: Share(hits=done[source], count=due[source]) for source in sorted(due)}
    return Sheet(
        title="Rows scored, of those that should be",
        columns=("source", "scored", "of", "share"),
        rows=tuple(
            (source, str(found.hits), str(found.count), _percent(found.value))
            for source, found in shares.items()
        ),
        numeric=frozenset({1, 2, 3}),
    )


def _assumptions(validation: Validation) -> Sheet:
    return Sheet(
        title="Assumptions",
        columns=("source", "assumed"),
        rows=tuple(
            (source, text)
            for source, texts in validation.collected.assumptions.items()
            for text in texts
        ),
    )


def _left_out(validation: Validation) -> Sheet:
    counted: Counter[tuple[str, str, bool]] = Counter()
    for skipped in validation.collected.skipped:
        counted[(skipped.source, skipped.reason, skipped.counts)] += 1
    for failed in validation.failed:
        counted[(failed.case.source, failed.reason, True)] += 1
    return Sheet(
        title="Rows that are not scored",
        columns=("source", "rows", "why", "counts against the share"),
        rows=tuple(
            (source, str(number), reason, "yes" if counts else "no")
            for (source, reason, counts), number in sorted(counted.items())
        ),
        numeric=frozenset({1}),
    )


def _worst(validation: Validation) -> Sheet:
    """The rows with the largest errors, and what their predictions are made of."""
    found = [(pair, o) for o in validation.outcomes if (pair := o.pair) is not None]
    found.sort(key=lambda item: -abs(item[0].error))
    return Sheet(
        title=f"The {WORST} worst rows and what was predicted for them",
        columns=("row", "model", "size", "error", "off by", "phase", "made of"),
        rows=tuple(
            (
                o.case.row,
                o.case.model,
                str(o.case.micro_batch),
                _signed(pair.error),
                _difference(pair),
                o.phase.value if o.phase is not None else "",
                _made_of(o),
            )
            for pair, o in found[:WORST]
        ),
        numeric=frozenset({2, 3, 4}),
    )


def _misses(validation: Validation) -> Sheet:
    """Brackets that were missed by more than a near miss."""
    return Sheet(
        title="Missed brackets",
        columns=("row", "model", "layout", "bracket", "predicted", "made of"),
        rows=tuple(
            (
                o.case.row,
                o.case.model,
                "NHWC" if o.case.spec.channels_last else "NCHW",
                f"{o.answer.fits} to {o.answer.fails}",
                o.answer.place.value,
                _made_of(o),
            )
            for o in validation.outcomes
            if o.answer is not None and o.answer.place.value != "inside" and not o.answer.is_near
        ),
    )


def _difference(pair: Pair) -> str:
    amount = pair.predicted.value - pair.measured
    return ("-" if amount < 0 else "+") + format_bytes(abs(amount))


def _made_of(outcome: Outcome) -> str:
    return ", ".join(
        f"{name} {format_bytes(amount)}" for name, amount in outcome.made_of.items() if amount > 0
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %"
