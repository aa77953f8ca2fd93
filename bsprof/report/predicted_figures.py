"""The figures that only a prediction has: the stack with the limit, the step with the peak."""

from __future__ import annotations

from collections.abc import Iterator

from bsprof.records import Point
from bsprof.report.category_plots import draw_stack
from bsprof.report.data import ProfileView, ReportData
from bsprof.report.drawing import Drawing
from bsprof.report.owners import live_bytes, ranked_modules
from bsprof.report.predicted import drawn_point, stage_table, totals
from bsprof.report.stack import stack
from bsprof.report.timeline_plots import draw_modules, draw_timeline
from bsprof.units import format_bytes


def predicted_drawings(data: ReportData, view: ProfileView, index: int) -> Iterator[Drawing]:
    """The figures of one predicted profile: what is known of it."""
    several = len(data.views) > 1
    ending = f"-{index}" if several else ""
    of_view = f": {view.label}" if several else ""
    if any(p.peak_by_category_bytes for p in view.profile.points):
        yield _stack(data, view, ending, of_view)
    point = drawn_point(view.profile, data.chosen_size(view))
    if point is None or point.prediction is None:
        return
    timeline = point.prediction.timeline
    if timeline is not None and totals(timeline):
        yield _timeline(point, ending, of_view)
    if ranked_modules(point):
        yield _modules(point, ending, of_view)


def _stack(data: ReportData, view: ProfileView, ending: str, of_view: str) -> Drawing:
    points = [p for p in view.profile.points if p.peak_by_category_bytes]
    last = ([p for p in points if p.is_ok] or points)[-1]
    layers = ", ".join(f"{part.name} {format_bytes(part.bytes)}" for part in stack(last))
    lines = ["Live bytes by category at the peak; cached: what the allocator holds beyond them."]
    lines.append("Context: what lies outside it. Whiskers: 90 % interval of the whole.")
    if any(not p.is_ok for p in points):
        lines.append("Pale: does not fit, or only after a cache flush.")
    return Drawing(
        key=f"stack{ending}",
        title=f"Who owns the peak{of_view}",
        caption=" ".join(lines),
        alternative=f"Stacked bars of the peak by micro-batch size. At {last.micro_batch_size}: "
        f"{layers}.",
        draw=lambda panel: draw_stack(panel, data, view),
        legend_rows=3,
    )


def _timeline(point: Point, ending: str, of_view: str) -> Drawing:
    size = f"{point.micro_batch_size:,}"
    table = stage_table(point)
    parts = "" if table is None else "; ".join(f"{r.cells[0]} {r.cells[2]}" for r in table.rows)
    return Drawing(
        key=f"timeline{ending}",
        title=f"The step with the peak, micro-batch {size}{of_view}",
        caption="Live bytes over the step, allocation by allocation: there are no seconds in it. "
        "Dashed: what the allocator holds.",
        alternative=f"Live bytes by category over the update. At most: {parts}.",
        draw=lambda panel: draw_timeline(panel, point),
        legend_rows=3,
    )


def _modules(point: Point, ending: str, of_view: str) -> Drawing:
    modules = ranked_modules(point)
    size = f"{point.micro_batch_size:,}"
    named = ", ".join(f"{name} {format_bytes(held)}" for name, held in modules[:3])
    return Drawing(
        key=f"modules{ending}",
        title=f"Modules at the peak, micro-batch {size}{of_view}",
        caption=f"Of {format_bytes(live_bytes(point))} that are live then, by the module whose "
        "forward made them or what their backward belongs to; the largest few.",
        alternative=f"Bars of bytes by module. The largest: {named}.",
        draw=lambda panel: draw_modules(panel, point),
        legend_rows=len(modules) // 2,
    )
