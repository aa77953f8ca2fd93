"""The figures of who owns the peak, as stacked bars by micro-batch size."""

from __future__ import annotations

from collections.abc import Sequence

from bsprof.records import Point, Profile, Quantity
from bsprof.report.data import ProfileView, ReportData
from bsprof.report.limits import draw_limits, is_near
from bsprof.report.panel import Panel, byte_unit, legend_below
from bsprof.report.stack import LAYERS, Part, stack
from bsprof.report.theme import CATEGORY_ROLES
from bsprof.report.words import quantity_text, status_text
from bsprof.units import format_bytes

_LABELLED_BARS = 16
_FEWEST_BARS = 5  # fewer bars are drawn as if there were this many: slim, in the middle
_WIDTH = 0.72
_PALE = 0.42  # opacity of a size that does not fit
_MOST_ABOVE = 1.6  # bars reach at most this many times the limit into the figure


def categories_known(profile: Profile) -> bool:
    """Whether some point knows whose bytes its peak is made of."""
    return any(p.peak_by_category_bytes for p in profile.points)


def draw_categories(panel: Panel, view: ProfileView, chosen: int | None) -> None:
    """Stacked bars: whose bytes the peak of live tensors is made of, by micro-batch size."""
    points = [p for p in view.profile.points if p.peak_by_category_bytes]
    totals = [sum(p.peak_by_category_bytes.values()) for p in points]
    per_unit, unit = byte_unit(max(totals))
    floor = [0.0] * len(points)
    for category, role in CATEGORY_ROLES.items():
        parts = [p.peak_by_category_bytes.get(category, 0) / per_unit for p in points]
        if not any(parts):
            continue
        bars = panel.axes.bar(
            range(len(points)),
            parts,
            width=_WIDTH,
            bottom=floor,
            color=panel.colours[role],
            edgecolor=panel.colours["surface"],
            linewidth=0.5,
            label=category.words,
        )
        for bar, point, part in zip(bars, points, parts, strict=True):
            key = f"bar-{len(panel.tips)}-{point.micro_batch_size}"
            bar.set_gid(key)
            panel.tips[key] = (
                f"micro-batch {point.micro_batch_size}: {category.words} "
                f"{format_bytes(part * per_unit)}"
            )
        floor = [low + part for low, part in zip(floor, parts, strict=True)]
    size_ticks(panel, points, chosen)
    panel.axes.set_ylabel(f"live tensors at the peak, {unit}")
    legend_below(panel)


def size_ticks(panel: Panel, points: Sequence[Point], chosen: int | None) -> None:
    """An axis with a place for every size, the chosen one in bold."""
    stride = -(-len(points) // _LABELLED_BARS)
    shown = [i for i, p in enumerate(points) if i % stride == 0 or p.micro_batch_size == chosen]
    axes = panel.axes
    axes.set_xticks(shown, [f"{points[i].micro_batch_size:,}" for i in shown])
    room = max(0.7, (_FEWEST_BARS - len(points)) / 2)
    axes.set_xlim(-room, len(points) - 1 + room)
    axes.set_xlabel("micro-batch size")
    axes.xaxis.grid(visible=False)
    for index, label in zip(shown, axes.get_xticklabels(), strict=True):
        if points[index].micro_batch_size == chosen:
            label.set_fontweight("bold")
            label.set_color(panel.colours["ink"])


def draw_stack(panel: Panel, data: ReportData, view: ProfileView) -> None:
    """Stacked bars of all that the device holds at the peak, with the limit and the interval."""
    points = [p for p in view.profile.points if p.peak_by_category_bytes]
    chosen = data.chosen_size(view)
    stacks = [stack(p) for p in points]
    tops = [sum(part.bytes for part in parts) for parts in stacks]
    per_unit, unit = byte_unit(max(tops))
    for place, (point, parts) in enumerate(zip(points, stacks, strict=True)):
        floor = 0.0
        for part in parts:
            [bar] = panel.axes.bar(
                [place],
                [part.bytes / per_unit],
                width=_WIDTH,
                bottom=[floor / per_unit],
                color=panel.colours[part.role],
                edgecolor=panel.colours["surface"],
                linewidth=0.5,
                alpha=1.0 if point.is_ok else _PALE,
            )
            key = f"bar-{len(panel.tips)}-{point.micro_batch_size}"
            bar.set_gid(key)
            panel.tips[key] = (
                f"micro-batch {point.micro_batch_size}: {part.name} {format_bytes(part.bytes)}"
            )
            floor += part.bytes
        if point.device_used_bytes is not None:
            _whisker(panel, place, point, point.device_used_bytes, per_unit)
    _legend_of_parts(panel, stacks)
    size_ticks(panel, points, chosen)
    panel.axes.set_ylabel(f"memory used at the peak, {unit}")
    limit = view.profile.device.usable_bytes
    panel.axes.set_ylim(bottom=0.0)
    draw_limits(panel, data, [limit], max(tops), per_unit)
    if is_near(limit, max(tops)) and any(p.is_ok for p in points):
        top = panel.axes.get_ylim()[1]
        panel.axes.set_ylim(top=min(top, _MOST_ABOVE * limit / per_unit))
    legend_below(panel)


def _whisker(panel: Panel, place: int, point: Point, used: Quantity, per_unit: float) -> None:
    """The interval of the whole, at the top of its bar."""
    low, high = used.low / per_unit, used.high / per_unit
    key = f"point-{len(panel.tips)}-{point.micro_batch_size}"
    panel.tips[key] = (
        f"micro-batch {point.micro_batch_size}: {quantity_text(used, format_bytes)} used, "
        f"{status_text(point)}"
    )
    panel.axes.plot(
        [place, place],
        [low, high],
        color=panel.colours["ink"],
        linewidth=1.2,
        marker="_",
        markersize=6.0,
        gid=key,
        zorder=5,
    )


def _legend_of_parts(panel: Panel, stacks: Sequence[Sequence[Part]]) -> None:
    """An entry in full colour for every layer: bars of sizes that do not fit are pale."""
    shown = {part.name for parts in stacks for part in parts}
    for name, role in LAYERS.items():
        if name in shown:
            panel.axes.bar([0], [0.0], color=panel.colours[role], label=name)
