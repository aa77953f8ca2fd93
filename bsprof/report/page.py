"""The report as one HTML page: no script, no request to anywhere, light and dark, printable.

Every text from a profile passes through `html.escape`; the style sheet stands beside this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files

from bsprof.records import Recommendation
from bsprof.report.data import ProfileView, ReportData
from bsprof.report.figures import Drawing, drawings
from bsprof.report.pictures import inline_svg
from bsprof.report.summary import (
    profile_facts,
    recommendation_facts,
    recommendation_summary,
)
from bsprof.report.tables import Emphasis, Row, Table, comparison_table, point_table
from bsprof.report.theme import DARK, LIGHT, Colours
from bsprof.report.words import (
    best_point,
    counts_text,
    device_text,
    environment_rows,
    failure_text,
    has_unequal_pieces,
    note_text,
    origin_text,
    pieces_text,
    quantity_text,
    size_range_text,
    status_text,
    workload_text,
)
from bsprof.units import format_bytes, format_count, format_seconds, format_share

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|[KMGTP]iB\b|B\b|[mu]?s\b)")


def html_text(data: ReportData) -> str:
    """The whole page."""
    body = "\n".join(
        (
            _header(data),
            _answer(data),
            _comparison(data),
            _figures(drawings(data)),
            _points(data),
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
    return escape(_BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text))


def pretty(text: str) -> str:
    """Escaped text of our own numbers, with `+-` as one sign and the spread set smaller."""
    value, sign, spread = prose(text).partition(" +-")
    if not sign:
        return value
    amount, _, rest = spread.partition("%")
    number = amount.strip()
    return f'{value} <span class="spread">&plusmn;{number}&thinsp;%</span>{rest}'


def _header(data: ReportData) -> str:
    chips: list[str] = []
    if len(data.views) == 1:
        profile = data.views[0].profile
        chips = [
            origin_text(profile),
            workload_text(profile.workload),
            device_text(profile.device),
            f"{format_bytes(profile.device.usable_bytes)} usable",
            f"torch {profile.environment.torch}",
            profile.created_at,
        ]
    else:
        chips = [view.label for view in data.views]
    items = "".join(f"<li>{escape(chip)}</li>" for chip in chips if chip)
    return f"""<header id="top">
<p class="kicker">bsprof report</p>
<h1>{escape(data.title)}</h1>
<ul class="chips">{items}</ul>
</header>"""


def _answer(data: ReportData) -> str:
    if data.recommendation is not None:
        return _recommendation(data, data.recommendation)
    found = [view for view in data.views if best_point(view.profile) is not None]
    if not found:
        return _nothing_ran(data)
    return _fastest(found[0]) if len(data.views) == 1 else ""


def _recommendation(data: ReportData, recommendation: Recommendation) -> str:
    view, plan, target = data.chosen_view, recommendation.plan, recommendation.target
    profile = view.profile if view else None
    summary = recommendation_summary(recommendation, profile)
    asked = f"{target.target_batch:,} samples per update"
    if target.target_tokens is not None:
        asked = f"{target.target_tokens:,} tokens ({target.target_batch:,} samples) per update"
    where = f", from {view.label}" if view is not None and len(data.views) > 1 else ""
    steps = "accumulation step" + ("" if plan.accumulation_steps == 1 else "s")
    parts = [(f"{plan.micro_batch_size:,}", "micro-batch"), (f"{plan.accumulation_steps:,}", steps)]
    if target.world_size > 1:
        parts.append((f"{target.world_size:,}", "ranks"))
    pieces = ""
    if has_unequal_pieces(plan):
        pieces = f'<p class="pieces">Exact pieces: {escape(pieces_text(plan.pieces))}</p>'
    others = ""
    if len(summary.table.rows) > 1:
        others = f"<h3>What it was chosen over</h3>\n{_table(summary.table)}"
    return f"""<section id="recommendation" class="card answer">
<h2 class="kicker">Recommended for {escape(asked + where)}</h2>
{_large(parts)}
{pieces}
{_tiles(recommendation_facts(recommendation, profile))}
{_meter(recommendation, view)}
{_list(summary.reasons, "reasons")}
{_list(summary.notes, "notes")}
{others}
</section>"""


def _large(parts: Sequence[tuple[str, str]]) -> str:
    inner = '<span class="times" aria-label="times">&times;</span>'.join(
        f'<span class="part"><b>{escape(number)}</b><span>{escape(name)}</span></span>'
        for number, name in parts
    )
    return f'<p class="plan">{inner}</p>'


def _tiles(facts: Iterable[tuple[str, str]]) -> str:
    shown = [(name, text) for name, text in facts if name not in ("pieces", "profile", "checked")]
    inner = "".join(f"<div><dt>{escape(n)}</dt><dd>{pretty(t)}</dd></div>" for n, t in shown)
    checked = "".join(
        f'<p class="checked">{escape(n.capitalize())}: {escape(t)}</p>'
        for n, t in facts
        if n in ("checked", "profile")
    )
    return f'<dl class="tiles">{inner}</dl>{checked}'


def _meter(recommendation: Recommendation, view: ProfileView | None) -> str:
    used = recommendation.plan.device_used_bytes
    if used is None or view is None or view.profile.device.usable_bytes <= 0:
        return ""
    usable = view.profile.device.usable_bytes
    share = min(1.0, used.value / usable)
    text = f"{format_share(share)} of {format_bytes(usable)} usable memory at the peak"
    return (
        f'<div class="meter" role="img" aria-label="{escape(text)}">'
        f'<span style="width: {100 * share:.1f}%"></span></div>'
        f'<p class="meter-text">{escape(text)}</p>'
    )


def _fastest(view: ProfileView) -> str:
    best = best_point(view.profile)
    assert best is not None, "the caller looked"
    kicker = "Confirmed size" if best.confirmed else "Fastest measured size"
    facts = [
        ("samples/s", quantity_text(best.samples_per_s, format_count)),
        ("micro-step", quantity_text(best.micro_step_s, format_seconds)),
        ("peak memory", quantity_text(best.device_used_bytes, format_bytes)),
    ]
    largest = view.profile.max_micro_batch_size
    if largest is not None:
        facts.append(("largest that fits", size_range_text(largest)))
    if view.knee is not None:
        facts.append(("knee", size_range_text(view.knee)))
    return f"""<section id="recommendation" class="card answer">
<h2 class="kicker">{kicker}, no target given</h2>
{_large([(f"{best.micro_batch_size:,}", "micro-batch")])}
{_tiles([(name, text) for name, text in facts if text])}
<p class="hint">For a plan: <code>bsprof recommend --target-batch N</code></p>
</section>"""


def _nothing_ran(data: ReportData) -> str:
    points = [p for view in data.views for p in view.profile.points]
    smallest = min(points, key=lambda p: p.micro_batch_size, default=None)
    if smallest is None:
        why = "No size was tried yet."
    else:
        reason = failure_text(smallest) or status_text(smallest)
        why = f"The smallest tried, {smallest.micro_batch_size:,}: {reason}."
    tail = smallest.failure.tail if smallest is not None and smallest.failure else ()
    shown = f"<pre>{escape(chr(10).join(tail))}</pre>" if tail else ""
    return f"""<section id="recommendation" class="card answer nothing">
<h2 class="kicker">No answer</h2>
<p class="plan"><span class="part"><b>No micro-batch size ran</b></span></p>
<p>{escape(why)}</p>
{shown}
</section>"""


def _comparison(data: ReportData) -> str:
    if len(data.views) == 1:
        return ""
    table = comparison_table([(v.label, v.profile, v.knee) for v in data.views])
    return f'<section id="comparison" class="card"><h2>Side by side</h2>{_table(table)}</section>'


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
    parts, columns = [], {}
    for view in data.views:
        table = point_table(view.profile, data.chosen_size(view))
        columns.update({column.title: column.meaning for column in table.columns})
        heading = f"<h3>{escape(view.label)}</h3>" if len(data.views) > 1 else ""
        shown = _table(table) if table.rows else "<p>No point yet.</p>"
        counts = escape(counts_text(view.profile))
        parts.append(f'{heading}\n{shown}\n<p class="legend">Points: {counts}.</p>')
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
    table, spanning = _reasons_across(table)
    kinds = ["number" if column.numeric else "text" for column in table.columns]
    head = "".join(
        f'<th scope="col" class="{kind}" title="{escape(column.meaning)}">'
        f"{escape(column.title)}</th>"
        for kind, column in zip(kinds, table.columns, strict=True)
    )
    rows = []
    for row in table.rows:
        cells = "".join(
            f'<td class="{kind}">{pretty(cell) if kind == "number" else prose(cell)}</td>'
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


def _reasons_across(table: Table) -> tuple[Table, dict[Row, str]]:
    """The table with the reason of rows without numbers set across their empty cells.

    Returns the table, in which those rows keep only their first two cells, and their reasons.
    The column of reasons goes when no other row needs it.
    """
    if len(table.columns) < 4 or table.columns[-1].key != "reason":
        return table, {}
    rows, reasons, needed = [], {}, False
    for row in table.rows:
        if row.cells[-1] and not any(row.cells[2:-1]):
            rows.append(replace(row, cells=row.cells[:2]))
            reasons[rows[-1]] = row.cells[-1]
        else:
            rows.append(row)
            needed = needed or bool(row.cells[-1])
    columns = table.columns if needed else table.columns[:-1]
    shown = tuple(replace(row, cells=row.cells[: len(columns)]) for row in rows)
    return replace(table, columns=columns, rows=shown), reasons


def _list(lines: Sequence[str], name: str) -> str:
    if not lines:
        return ""
    inner = "".join(f"<li>{prose(line)}</li>" for line in lines)
    return f'<ul class="{name}">{inner}</ul>'


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
        f"<footer>Measured with bsprof {escape(', '.join(versions))}. Intervals are 90 %. "
        "KiB, MiB and GiB are 1024-based.</footer>"
    )
