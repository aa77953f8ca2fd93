"""The report as Markdown: the answer, its reasons, the tables, notes and environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bsprof.report.comparison import comparison_summary
from bsprof.report.data import ProfileView, ReportData
from bsprof.report.further import further_tables
from bsprof.report.summary import Summary, profile_summary, recommendation_summary
from bsprof.report.tables import Emphasis, Table, point_table
from bsprof.report.timed import TIMES_FROM, provenance_sentences
from bsprof.report.words import (
    environment_rows,
    note_text,
    provenance_text,
    size_range_text,
)
from bsprof.units import format_share

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~$])")


def markdown_text(data: ReportData) -> str:
    """The whole report, ending in a newline."""
    return "\n".join(_lines(data)).rstrip() + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _lines(data: ReportData) -> Iterator[str]:
    yield f"# {escaped(data.title)}"
    yield ""
    if data.recommendation is not None:
        view = data.chosen_view
        summary = recommendation_summary(data.recommendation, view.profile if view else None)
        yield f"## Recommended: {escaped(summary.title)}"
        yield ""
        yield from _bullets(escaped(reason) for reason in summary.reasons)
        yield from _fact_table(summary.facts)
        if len(summary.table.rows) > 1:
            yield from _table(summary.table, level=3)
        yield from _bullets(escaped(note) for note in summary.notes)
    if data.comparison is not None:
        yield from _comparison_lines(comparison_summary(data.comparison))
    for view in data.views:
        yield from _view_lines(view, data.chosen_size(view))
    timed = any(p.samples_per_s for view in data.views for p in view.profile.points)
    rate = " `samples/s` in the tables of points is with accumulation of one."
    yield "Intervals are 90 %." + (rate if timed else "")


def _comparison_lines(summary: Summary) -> Iterator[str]:
    yield f"## {escaped(summary.title)}"
    yield ""
    yield from _fact_table(summary.facts)
    yield from _bullets(escaped(note) for note in summary.notes)
    for table in (summary.table, *summary.more):
        yield from _table(table, level=3)


def _view_lines(view: ProfileView, chosen: int | None) -> Iterator[str]:
    profile = view.profile
    summary = profile_summary(view.name, profile)
    yield f"## {escaped(view.label)}"
    yield ""
    yield f"{escaped(summary.title)}."
    yield ""
    if where := provenance_text(profile):
        yield f"**{escaped(where[0].upper() + where[1:])}.**"
        yield ""
    yield from _fact_table(summary.facts)
    if view.saturation is not None:
        shape = f"Throughput over the {profile.origin} range: {view.saturation}"
        if view.knee is not None:
            share = format_share(view.knee_share)
            shape += f"; {share} of the asymptote from micro-batch {size_range_text(view.knee)} on"
        yield f"{shape}."
        yield ""
    if profile.points:
        yield from _table(point_table(profile, chosen), level=3)
    for table in further_tables(profile, chosen):
        yield from _table(table, level=3)
    if origins := provenance_sentences(profile):
        yield f"### {TIMES_FROM}"
        yield ""
        yield from _bullets(map(escaped, origins))
    notes = [*map(note_text, profile.notes), *view.problems]
    if notes:
        yield "### Notes"
        yield ""
        yield from _bullets(escaped(note) for note in notes)
    yield "### Environment"
    yield ""
    yield from _fact_table(environment_rows(profile))


def _bullets(lines: Iterable[str]) -> Iterator[str]:
    found = [f"- {line}" for line in lines]
    yield from found
    if found:
        yield ""


def _fact_table(facts: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    for name, text in facts:
        yield f"| {escaped(name)} | {escaped(text)} |"
    yield ""


def _table(table: Table, level: int) -> Iterator[str]:
    yield f"{'#' * level} {escaped(table.caption)}"
    yield ""
    yield "| " + " | ".join(escaped(column.title) for column in table.columns) + " |"
    yield "|" + "|".join("---:" if column.numeric else "---" for column in table.columns) + "|"
    for row in table.rows:
        cells = [escaped(cell) for cell in row.cells]
        if row.emphasis is Emphasis.CHOSEN:
            cells = [f"**{cell}**" if cell else "" for cell in cells]
        yield "| " + " | ".join(cells) + " |"
    yield ""
