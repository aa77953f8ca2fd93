"""The figure of where the time of a micro-step goes, as stacked shares by micro-batch size."""

from __future__ import annotations

from bsprof.report.category_plots import size_ticks
from bsprof.report.data import ProfileView
from bsprof.report.panel import Panel, legend_below
from bsprof.report.time_classes import GROUPS, class_points, portions
from bsprof.units import format_seconds, format_share

_WIDTH = 0.72


def draw_classes(panel: Panel, view: ProfileView, chosen: int | None) -> None:
    """Stacked bars: what share of a micro-step each group of work takes, and waiting."""
    points = class_points(view.profile)
    stacks = [portions(p) for p in points]
    shown = {portion.name for parts in stacks for portion in parts}
    for place, (point, parts) in enumerate(zip(points, stacks, strict=True)):
        whole, floor = sum(portion.seconds for portion in parts), 0.0
        for portion in parts:
            share = portion.seconds / whole
            [bar] = panel.axes.bar(
                [place],
                [100 * share],
                width=_WIDTH,
                bottom=[100 * floor],
                color=panel.colours[portion.role],
                edgecolor=panel.colours["surface"],
                linewidth=0.5,
            )
            key = f"bar-{len(panel.tips)}-{point.micro_batch_size}"
            bar.set_gid(key)
            panel.tips[key] = (
                f"micro-batch {point.micro_batch_size}: {portion.name} "
                f"{format_seconds(portion.seconds)}, {format_share(share)}"
            )
            floor += share
    for name, role in GROUPS.items():
        if name in shown:
            panel.axes.bar([0], [0.0], color=panel.colours[role], label=name)
    size_ticks(panel, points, chosen)
    panel.axes.set_ylim(0.0, 100.0)
    panel.axes.set_ylabel("share of a micro-step, %")
    legend_below(panel)
