"""Figures to bytes: inline SVG that follows the page's colours, and PNG."""

from __future__ import annotations

import io
import re
from html import escape

from bsprof.records import per_second
from bsprof.report.data import ReportData
from bsprof.report.drawing import Drawing
from bsprof.report.figures import drawings
from bsprof.report.panel import Panel
from bsprof.report.summary import recommendation_facts
from bsprof.report.theme import LIGHT, TOKENS, drawable_text, figure_settings, new_figure
from bsprof.report.timed import is_timed_prediction
from bsprof.report.words import (
    best_point,
    device_text,
    largest_fitting,
    plan_text,
    provenance_text,
    quantity_text,
    workload_text,
)
from bsprof.units import format_bytes, format_count

_WIDTH_IN, _HEIGHT_IN = 5.6, 3.7  # small enough that text stays readable on a phone
_PNG_WIDTH_IN, _PNG_ROW_IN, _PNG_HEAD_IN, _PNG_DPI = 13.0, 4.3, 1.5, 130
_PNG_LINE_IN = 0.25  # more heading, for one more line
# Letters that fit across the picture, times their size in points.
_HEADING_CHARACTERS = {"normal": 1650, "bold": 1480}
_HEADING_FACTS = ("effective batch", "update", "samples/s", "peak memory", "regime")


def inline_svg(drawing: Drawing) -> str:
    """The figure as an `<svg>` element in CSS variables, with title, description and tips.

    The element has no size of its own and no reference to anything outside; its ids begin with
    the drawing's key, so that several can stand in one page. The same data give the same text.
    """
    with figure_settings(TOKENS):
        figure = new_figure(_WIDTH_IN, _HEIGHT_IN)
        panel = Panel(axes=figure.add_subplot(), colours=TOKENS)
        drawing.draw(panel)
        buffer = io.StringIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    return _embeddable(buffer.getvalue(), drawing, panel.tips)


def _embeddable(text: str, drawing: Drawing, tips: dict[str, str]) -> str:
    body = text[text.index("<svg") :]
    view_box = re.search(r'viewBox="([^"]+)"', body)
    assert view_box is not None, "matplotlib writes a viewBox"
    body = body[body.index(">") + 1 : body.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    for key, tip in tips.items():
        body = body.replace(f'<g id="{key}">', f'<g id="{key}"><title>{escape(tip)}</title>')
    prefix = f"{drawing.key}-"
    body = re.sub(r'\bid="', f'id="{prefix}', body)
    body = body.replace("url(#", f"url(#{prefix}").replace('xlink:href="#', f'href="#{prefix}')
    for role, token in TOKENS.items():
        body = body.replace(token, f"var(--{role})")
    name, description = f"{prefix}name", f"{prefix}description"
    return (
        f'<svg viewBox="{view_box[1]}" role="img" aria-labelledby="{name} {description}">'
        f'<title id="{name}">{escape(drawing.title)}</title>'
        f'<desc id="{description}">{escape(drawing.alternative)}</desc>{body}</svg>\n'
    )


def png(data: ReportData) -> bytes:
    """All figures under a heading with the answer, in the light colours."""
    found = drawings(data)
    rows = max(1, -(-len(found) // 2))
    predicted = any(provenance_text(view.profile) for view in data.views)
    head = _PNG_HEAD_IN + (_PNG_LINE_IN if predicted else 0.0)
    height = head + _PNG_ROW_IN * rows if found else head + 0.5
    with figure_settings(LIGHT):
        figure = new_figure(_PNG_WIDTH_IN, height)
        figure.set_facecolor(LIGHT["surface"])
        engine = figure.get_layout_engine()
        assert engine is not None, "constrained layout is on in the settings"
        engine.set(  # type: ignore[call-arg]
            rect=(0.01, 0.01, 0.98, 1 - head / height), w_pad=0.15, h_pad=0.12
        )
        _heading(figure, data, height)
        for index, drawing in enumerate(found, start=1):
            axes = figure.add_subplot(rows, 2, index)
            axes.set_title(
                drawable_text(drawing.title, 70), loc="left", fontweight="bold", fontsize=11, pad=32
            )
            drawing.draw(Panel(axes=axes, colours=LIGHT))
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=_PNG_DPI, metadata={"Software": None})
    return buffer.getvalue()


def _heading(figure: object, data: ReportData, height: float) -> None:
    lines = [(data.title, 18.0, "bold", "ink")]
    if data.recommendation is not None:
        lines.append((plan_text(data.recommendation), 15.0, "bold", "accent"))
        view = data.chosen_view
        facts = recommendation_facts(data.recommendation, view.profile if view else None)
        shown = [f"{name} {text}" for name, text in facts if name in _HEADING_FACTS]
        lines.append(("  |  ".join(shown), 10.0, "normal", "soft"))
    else:
        if data.comparison is not None:
            lines.append((data.comparison.title, 15.0, "bold", "accent"))
            lines.append((_fastest_text(data), 10.0, "normal", "soft"))
        else:
            lines.append((_fastest_text(data), 13.0, "bold", "accent"))
    if provenance := "; ".join(t for v in data.views if (t := provenance_text(v.profile))):
        lines.append((f"{provenance[0].upper()}{provenance[1:]}", 10.0, "bold", "edge"))
    if len(data.views) == 1:
        profile = data.views[0].profile
        about = f"{workload_text(profile.workload)} on {device_text(profile.device)}"
        lines.append((about, 10.0, "normal", "soft"))
    offset = 0.18
    for text, size, weight, role in lines:
        figure.text(  # type: ignore[attr-defined]
            0.015,
            1 - offset / height,
            drawable_text(text, int(_HEADING_CHARACTERS[weight] / size)),
            fontsize=size,
            fontweight=weight,
            color=LIGHT[role],
            va="top",
        )
        offset += 0.022 * size


def _fastest_text(data: ReportData) -> str:
    parts = []
    for view in data.views:
        best = best_point(view.profile)
        label = f"{view.label}: " if len(data.views) > 1 else ""
        largest = largest_fitting(view.profile)
        if best is None and largest is not None:
            used = quantity_text(largest.device_used_bytes, format_bytes)
            size = f"{largest.micro_batch_size:,}"
            parts.append(f"{label}micro-batch {size} is the largest predicted that fits, {used}")
        elif best is None or best.samples_per_s is None:
            parts.append(f"{label}no micro-batch size ran")
        elif is_timed_prediction(view.profile) and best.micro_step_s is not None:
            step = per_second(best.micro_batch_size, best.micro_step_s)
            rate = format_count(step.value) if label else quantity_text(step, format_count)
            says = "" if label else "predicted "
            parts.append(
                f"{label}micro-batch {best.micro_batch_size:,}, {says}{rate} samples/s in "
                "micro-steps"
            )
        else:
            rate = format_count(best.samples_per_s.value)
            parts.append(f"{label}micro-batch {best.micro_batch_size:,}, {rate} samples/s")
    return "; ".join(parts)
