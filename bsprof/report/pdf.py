"""The report as a PDF: pages of A4, figures as vectors, text that can be selected and searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bsprof.report.answer import OTHERS, Answer, report_answer
from bsprof.report.comparison import comparison_summary
from bsprof.report.data import ReportData, made_text
from bsprof.report.drawing import Drawing
from bsprof.report.figures import drawings
from bsprof.report.further import further_tables
from bsprof.report.head import about_texts, provenance_lines
from bsprof.report.panel import Panel
from bsprof.report.pdf_pages import LEFT, WIDTH, Pages, line_height
from bsprof.report.pdf_table import draw_pairs, draw_table, pretty
from bsprof.report.pdf_text import kept_together, shown, width_of, wrapped
from bsprof.report.summary import Summary, profile_facts
from bsprof.report.tables import point_table
from bsprof.report.theme import LIGHT, drawable_text, figure_settings
from bsprof.report.timed import TIMES_FROM, provenance_sentences
from bsprof.report.words import (
    counts_text,
    environment_rows,
    note_text,
)

_PAPER = {**LIGHT, "surface": "#ffffff", "page": "#ffffff"}
_FIGURE_IN = 2.55  # three figures with their captions fill a page
_ENTRY_IN = 0.17  # one more row of the legend
_TILES = 4  # facts beside each other
_DOT = " \N{MIDDLE DOT} "


def pdf(data: ReportData) -> bytes:
    """The whole report; the same data give the same bytes."""
    import matplotlib

    with figure_settings(_PAPER):
        # Whole fonts' outlines, not drawings of letters: readers find and copy the text.
        matplotlib.rcParams.update({"pdf.fonttype": 42, "figure.constrained_layout.use": False})
        pages = Pages(_PAPER)
        _head(pages, data)
        answer = report_answer(data)
        if answer is not None:
            _answer(pages, answer)
        if data.comparison is not None:
            _comparison(pages, comparison_summary(data.comparison))
        for drawing in drawings(data):
            _figure(pages, drawing, len(data.views))
        _points(pages, data)
        _times_from(pages, data)
        _notes(pages, data)
        _environment(pages, data)
        _closing(pages, data)
        return pages.finished(f"{data.title} - bsprof", _footer(data))


def _footer(data: ReportData) -> str:
    """What stands on every page: which report this is, and that it is a prediction."""
    made = made_text(data)
    says = "" if made == "Measured" else f"{_DOT}{made.lower()}"
    prediction = data.views[0].profile.prediction
    if len(data.views) == 1 and prediction is not None and prediction.software.get("torch"):
        says += f", torch {prediction.software['torch']} rules"
    return f"bsprof report{says}{_DOT}{shown(data.title)}"


def _head(pages: Pages, data: ReportData) -> None:
    _kicker(pages, "bsprof report")
    size = 19.0 if width_of(shown(data.title), 19.0, bold=True) < 2 * WIDTH else 13.0
    pages.paragraph(data.title, size=size, bold=True, after=0.04)
    for line in provenance_lines(data):
        pages.paragraph(kept_together(line), size=9.5, bold=True, role="edge")
    pages.paragraph(kept_together(_DOT.join(about_texts(data))), size=8.5, role="soft", after=0.12)
    pages.rule(pages.y, role="accent", points=2.0)
    pages.y += 0.18


def _kicker(pages: Pages, text: str) -> None:
    pages.paragraph(text, size=8.5, role="muted", bold=True, after=0.03)


def _answer(pages: Pages, answer: Answer) -> None:
    _kicker(pages, answer.kicker)
    _large(pages, answer)
    if answer.pieces:
        pages.paragraph(f"Exact pieces: {answer.pieces}", size=8.5, role="soft")
    if answer.why:
        pages.paragraph(answer.why)
    for line in answer.tail:
        pages.paragraph(line, size=7.5, role="soft", indent=0.12, after=0.0)
    if answer.facts:
        _tiles(pages, answer.facts)
    for name, text in answer.small:
        pages.paragraph(f"{name.capitalize()}: {text}", size=8, role="muted", after=0.02)
    if answer.memory is not None:
        _meter(pages, *answer.memory)
    pages.space(0.1)
    pages.bullets(map(kept_together, answer.reasons))
    pages.bullets(map(kept_together, answer.notes), size=8.5, role="soft")
    if answer.others is not None:
        draw_table(pages, answer.others, OTHERS)
    if answer.next_step:
        pages.paragraph(f"For a plan: {answer.next_step}", size=8.5, role="muted")


def _large(pages: Pages, answer: Answer) -> None:
    """The numbers of the answer in one line, as large as fits."""
    number_size, name_size = (32.0, 11.5) if answer.found else (20.0, 11.5)
    pieces = []
    for order, (number, name) in enumerate(answer.parts):
        if order:
            pieces.append(("  \N{MULTIPLICATION SIGN}  ", 0.6 * number_size, "muted", False))
        pieces.append((number, number_size, "accent" if answer.found else "bad", True))
        if name:
            pieces.append((f" {name}", name_size, "soft", False))
    whole = sum(width_of(text, size, bold=bold) for text, size, _, bold in pieces)
    factor, x = min(1.0, WIDTH / whole), LEFT
    largest = number_size * factor
    for text, size, role, bold in pieces:
        size *= factor
        # On one base line: smaller text begins further down.
        pages.line(text, x, pages.y + 0.78 * (largest - size) / 72, size=size, role=role, bold=bold)
        x += width_of(text, size, bold=bold)
    pages.y += line_height(largest) - 0.05


def _tiles(pages: Pages, facts: Sequence[tuple[str, str]]) -> None:
    """Names over values, in a grid between two rules."""
    gap = 0.2
    width = (WIDTH - gap * (_TILES - 1)) / _TILES
    pages.rule(pages.y)
    pages.y += 0.09
    for start in range(0, len(facts), _TILES):
        row = [(name, wrapped(pretty(text), width, 10)) for name, text in _row(facts, start)]
        for place, (name, lines) in enumerate(row):
            x = LEFT + place * (width + gap)
            pages.line(name, x, pages.y, size=8, role="muted")
            for order, line in enumerate(lines):
                y = pages.y + line_height(8) + order * line_height(10)
                pages.line(line, x, y, size=10)
        most = max(len(lines) for _, lines in row)
        pages.y += line_height(8) + most * line_height(10) + 0.08
    pages.rule(pages.y)
    pages.y += 0.1


def _row(facts: Sequence[tuple[str, str]], start: int) -> Sequence[tuple[str, str]]:
    return facts[start : start + _TILES]


def _meter(pages: Pages, share: float, text: str) -> None:
    pages.y += 0.05
    pages.box(LEFT, pages.y, WIDTH, 0.08, role="grid")
    pages.box(LEFT, pages.y, share * WIDTH, 0.08, role="accent")
    pages.y += 0.13
    pages.paragraph(kept_together(text), size=8, role="muted")


def _comparison(pages: Pages, summary: Summary) -> None:
    pages.space(0.1)
    _kicker(pages, "Side by side")
    pages.paragraph(kept_together(summary.title), size=14, bold=True, role="accent")
    for name, text in summary.facts:
        pages.paragraph(
            f"{name.capitalize()}: {kept_together(text)}", size=8.5, role="soft", after=0.02
        )
    pages.space(0.05)
    pages.bullets(map(kept_together, summary.notes), size=8.5, role="soft")
    pages.space(0.05)
    for table in (summary.table, *summary.more):
        columns = tuple(replace(c, title=drawable_text(c.title)) for c in table.columns)
        heading = "" if table is summary.table else table.caption
        draw_table(pages, replace(table, columns=columns), heading)


def _figure(pages: Pages, drawing: Drawing, profiles: int) -> None:
    more_rows = 1 if drawing.key.startswith("categories") else profiles - 1
    if drawing.legend_rows is not None:
        more_rows = drawing.legend_rows - 1
    height = _FIGURE_IN + _ENTRY_IN * more_rows
    caption = wrapped(kept_together(drawing.caption), WIDTH, 8)
    below = len(caption) * line_height(8)
    pages.heading(drawing.title, size=11, keep=height + below)
    axes = pages.axes(height)
    drawing.draw(Panel(axes=axes, colours=pages.colours))
    pages.settle(axes, height)
    pages.y += 0.06
    for line in caption:
        pages.line(line, LEFT, pages.y, size=8, role="soft")
        pages.y += line_height(8)


def _points(pages: Pages, data: ReportData) -> None:
    meanings: dict[str, str] = {}
    for view in data.views:
        table = point_table(view.profile, data.chosen_size(view))
        meanings |= {c.title: c.meaning for c in table.columns if c.title not in meanings}
        heading = f"All points: {view.label}" if len(data.views) > 1 else "All points"
        if table.rows:
            draw_table(pages, table, heading, heading_size=13)
        else:
            pages.heading(heading, keep=0.2)
        counts = f"Points: {counts_text(view.profile)}."
        pages.paragraph(counts if table.rows else "No point yet.", size=8, role="muted")
        for more in further_tables(view.profile, data.chosen_size(view), drawn=True):
            meanings |= {c.title: c.meaning for c in more.columns if c.title not in meanings}
            draw_table(pages, more, more.caption)
    pages.heading("What the columns mean", size=10)
    draw_pairs(pages, list(meanings.items()), ragged=True)


def _times_from(pages: Pages, data: ReportData) -> None:
    """Where predicted times come from; nothing where there are none."""
    for view in data.views:
        if lines := provenance_sentences(view.profile):
            label = f": {view.label}" if len(data.views) > 1 else ""
            pages.heading(f"{TIMES_FROM}{label}", keep=0.3)
            pages.bullets(map(kept_together, lines), size=8.5)


def _notes(pages: Pages, data: ReportData) -> None:
    lines = []
    for view in data.views:
        label = f"{view.label}: " if len(data.views) > 1 else ""
        found = [*map(note_text, view.profile.notes), *view.problems]
        lines += [kept_together(f"{label}{text}") for text in found]
    if lines:
        pages.heading("Notes", keep=0.3)
        pages.bullets(lines, size=8.5)


def _environment(pages: Pages, data: ReportData) -> None:
    for view in data.views:
        heading = f"Environment: {view.label}" if len(data.views) > 1 else "Environment"
        pages.heading(heading, keep=0.6)
        facts = profile_facts(view.name, view.profile)
        draw_pairs(pages, (*facts, *environment_rows(view.profile)))


def _closing(pages: Pages, data: ReportData) -> None:
    versions = ", ".join(sorted({view.profile.environment.bsprof for view in data.views}))
    pages.space(0.08)
    pages.paragraph(
        f"{made_text(data)} with bsprof {versions}. Intervals are 90 %. "
        "KiB, MiB and GiB are 1024-based.",
        size=8,
        role="muted",
    )
