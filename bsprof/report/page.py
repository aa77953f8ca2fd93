"""The report as one HTML page: no script, no request to anywhere, light and dark, printable.

Every text from a profile passes through `html.escape`; the style sheet stands beside this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from bsprof.report.answer import OTHERS, report_answer
from bsprof.report.comparison import comparison_summary
from bsprof.report.data import ReportData, made_text
from bsprof.report.drawing import Drawing
from bsprof.report.figures import drawings
from bsprof.report.further import further_tables
from bsprof.report.head import about_texts, provenance_lines
from bsprof.report.pictures import inline_svg
from bsprof.report.summary import profile_facts
from bsprof.report.tables import Emphasis, Table, point_table, reasons_across
from bsprof.report.theme import DARK, LIGHT, Colours
from bsprof.report.timed import TIMES_FROM, provenance_sentences
from bsprof.report.words import (
    counts_text,
    environment_rows,
    note_text,
    unbroken,
)

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def html_text(data: ReportData) -> str:
    """The whole page."""
    body = "\n".join(
        (
            _header(data),
            _answer(data),
            _comparison(data),
            _figures(drawings(data)),
            _points(data),
            _times_from(data),
            _notes(data),
            _environment(data),
            _footer(data),
        )
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<link rel="icon" href="data:,">
<title>{escape(data.title)} - bsprof</title>
<style>
{_style()}
</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def _style() -> str:
    sheet = files("bsprof.report").joinpath("page.css").read_text(encoding="utf-8")
    dark = f"@media (prefers-color-scheme: dark) {{\n:root {{ {_variables(DARK)} }}\n}}"
    # Paper is light whatever the screen is.
    paper = f"@media print {{\n:root {{ {_variables(LIGHT)} }}\n}}"
    return f":root {{ {_variables(LIGHT)} }}\n{dark}\n{paper}\n{sheet.strip()}"


def _variables(colours: Colours) -> str:
    return " ".join(f"--{role}: {colour};" for role, colour in colours.items())


def prose(text: str) -> str:
    """Escaped text that does not break between a number and its unit."""
    return escape(unbroken(text))


def pretty(text: str) -> str:
    """Escaped text of our own numbers, with `+-` as one sign and the spread set smaller."""
    value, sign, spread = prose(text).partition(" +-")
    if not sign:
        return value
    amount, _, rest = spread.partition("%")
    number = amount.strip()
    return f'{value} <span class="spread">&plusmn;{number}&thinsp;%</span>{rest}'


def _header(data: ReportData) -> str:
    items = "".join(f"<li>{escape(chip)}</li>" for chip in about_texts(data) if chip)
    lines = provenance_lines(data)
    provenance = "".join(f'<p class="provenance">{escape(line)}</p>\n' for line in lines)
    return f"""<header id="top">
<p class="kicker">bsprof report</p>
<h1>{escape(data.title)}</h1>
{provenance}<ul class="chips">{items}</ul>
</header>"""


def _answer(data: ReportData) -> str:
    answer = report_answer(data)
    if answer is None:
        return ""
    name = "card answer" if answer.found else "card answer nothing"
    parts = (
        f'<h2 class="kicker">{escape(answer.kicker)}</h2>',
        _large(answer.parts),
        f'<p class="pieces">Exact pieces: {escape(answer.pieces)}</p>' if answer.pieces else "",
        f"<p>{escape(answer.why)}</p>" if answer.why else "",
        f"<pre>{escape(chr(10).join(answer.tail))}</pre>" if answer.tail else "",
        _tiles(answer.facts),
        *(f'<p class="checked">{escape(n.capitalize())}: {escape(t)}</p>' for n, t in answer.small),
        "" if answer.memory is None else _meter(*answer.memory),
        _list(answer.reasons, "reasons"),
        _list(answer.notes, "notes"),
        f"<h3>{OTHERS}</h3>\n{_table(answer.others)}" if answer.others is not None else "",
        f'<p class="hint">For a plan: <code>{escape(answer.next_step)}</code></p>'
        if answer.next_step
        else "",
    )
    inner = "\n".join(part for part in parts if part)
    return f'<section id="recommendation" class="{name}">\n{inner}\n</section>'


def _large(parts: Sequence[tuple[str, str]]) -> str:
    inner = '<span class="times" aria-label="times">&times;</span>'.join(
        f'<span class="part"><b>{escape(number)}</b>'
        + (f"<span>{escape(name)}</span></span>" if name else "</span>")
        for number, name in parts
    )
    return f'<p class="plan">{inner}</p>'


def _tiles(facts: Iterable[tuple[str, str]]) -> str:
    inner = "".join(f"<div><dt>{escape(n)}</dt><dd>{pretty(t)}</dd></div>" for n, t in facts)
    return f'<dl class="tiles">{inner}</dl>' if inner else ""


def _meter(share: float, text: str) -> str:
    return (
        f'<div class="meter" role="img" aria-label="{escape(text)}">'
        f'<span style="width: {100 * share:.1f}%"></span></div>'
        f'<p class="meter-text">{escape(text)}</p>'
    )


def _comparison(data: ReportData) -> str:
    if data.comparison is None:
        return ""
    summary = comparison_summary(data.comparison)
    facts = "".join(
        f'<p class="checked">{escape(name.capitalize())}: {prose(text)}</p>'
        for name, text in summary.facts
    )
    more = "".join(f"<h3>{escape(t.caption)}</h3>\n{_table(t)}\n" for t in summary.more)
    leads = "" if data.recommendation is not None else " answer"
    return f"""<section id="comparison" class="card{leads}">
<p class="kicker">Side by side</p>
<h2>{escape(summary.title)}</h2>
{facts}
{_list(summary.notes, "notes")}
{_table(summary.table)}
{more}</section>"""


def _figures(found: Sequence[Drawing]) -> str:
    if not found:
        return '<section id="figures" class="figures"></section>'
    inner = "\n".join(
        f'<figure id="figure-{d.key}" class="card"><h2>{escape(d.title)}</h2>\n{inline_svg(d)}'
        f"<figcaption>{prose(d.caption)}</figcaption></figure>"
        for d in found
    )
    return f'<section id="figures" class="figures">\n{inner}\n</section>'


def _points(data: ReportData) -> str:
    parts: list[str] = []
    columns: dict[str, str] = {}
    for view in data.views:
        table = point_table(view.profile, data.chosen_size(view))
        columns |= {c.title: c.meaning for c in table.columns if c.title not in columns}
        heading = f"<h3>{escape(view.label)}</h3>" if len(data.views) > 1 else ""
        shown = _table(table) if table.rows else "<p>No point yet.</p>"
        counts = escape(counts_text(view.profile))
        parts.append(f'{heading}\n{shown}\n<p class="legend">Points: {counts}.</p>')
        for more in further_tables(view.profile, data.chosen_size(view), drawn=True):
            columns |= {c.title: c.meaning for c in more.columns if c.title not in columns}
            parts.append(f"<h3>{escape(more.caption)}</h3>\n{_table(more)}")
    inner = "\n".join(parts)
    meanings = "".join(
        f"<div><dt>{escape(title)}</dt><dd>{escape(meaning)}</dd></div>"
        for title, meaning in columns.items()
    )
    return f"""<section id="points" class="card"><h2>All points</h2>
{inner}
<details><summary>What the columns mean</summary><dl class="environment">{meanings}</dl></details>
</section>"""


def _table(table: Table) -> str:
    table, spanning = reasons_across(table)
    kinds = ["number" if column.numeric else "text" for column in table.columns]
    head = "".join(
        f'<th scope="col" class="{kind}" title="{escape(column.meaning)}">'
        f"{escape(column.title)}</th>"
        for kind, column in zip(kinds, table.columns, strict=True)
    )
    rows = []
    for row in table.rows:
        cells = "".join(
            f'<td class="{kind}">{pretty(cell)}</td>'
            for kind, cell in zip(kinds, row.cells, strict=False)
        )
        if row in spanning:
            width = len(kinds) - len(row.cells)
            cells += f'<td class="text" colspan="{width}">{escape(spanning[row])}</td>'
        name = "" if row.emphasis is Emphasis.NONE else f' class="{row.emphasis}"'
        rows.append(f"<tr{name}>{cells}</tr>")
    body = "\n".join(rows)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.caption)}">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _list(lines: Sequence[str], name: str) -> str:
    if not lines:
        return ""
    inner = "".join(f"<li>{prose(line)}</li>" for line in lines)
    return f'<ul class="{name}">{inner}</ul>'


def _times_from(data: ReportData) -> str:
    """Where predicted times come from; nothing where there are none."""
    parts = []
    for view in data.views:
        if lines := provenance_sentences(view.profile):
            heading = f"<h3>{escape(view.label)}</h3>" if len(data.views) > 1 else ""
            parts.append(f"{heading}{_list(lines, 'notes')}")
    if not parts:
        return ""
    inner = "\n".join(parts)
    return f'<section id="times" class="card"><h2>{TIMES_FROM}</h2>\n{inner}\n</section>'


def _notes(data: ReportData) -> str:
    lines = []
    for view in data.views:
        label = f"{view.label}: " if len(data.views) > 1 else ""
        found = [*map(note_text, view.profile.notes), *view.problems]
        lines += [f"{label}{text}" for text in found]
    shown = _list(lines, "notes") or "<p>None.</p>"
    return f'<section id="notes" class="card"><h2>Notes</h2>{shown}</section>'


def _environment(data: ReportData) -> str:
    parts = []
    for view in data.views:
        rows = (*profile_facts(view.name, view.profile), *environment_rows(view.profile))
        heading = f"<h3>{escape(view.label)}</h3>" if len(data.views) > 1 else ""
        inner = "".join(f"<div><dt>{escape(n)}</dt><dd>{escape(t)}</dd></div>" for n, t in rows)
        parts.append(f'{heading}<dl class="environment">{inner}</dl>')
    inner = "\n".join(parts)
    return f'<section id="environment" class="card"><h2>Environment</h2>\n{inner}\n</section>'


def _footer(data: ReportData) -> str:
    versions = sorted({view.profile.environment.bsprof for view in data.views})
    return (
        f"<footer>{made_text(data)} with bsprof {escape(', '.join(versions))}. Intervals are 90 %. "
        "KiB, MiB and GiB are 1024-based.</footer>"
    )
