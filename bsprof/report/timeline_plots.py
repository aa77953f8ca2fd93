"""The figures of the step with the peak: live bytes over it, and the modules that hold them."""

from __future__ import annotations

from bsprof.records import Point, Timeline
from bsprof.report.owners import live_bytes, ranked_modules
from bsprof.report.panel import Panel, byte_unit, legend_below
from bsprof.report.predicted import stage_name, stage_spans, totals
from bsprof.report.theme import CATEGORY_ROLES, drawable_text
from bsprof.units import format_bytes, format_share

_ROOM_ABOVE = 1.14  # for the label of the peak
_MODULE_LETTERS = 58
_SLIM = 0.03  # a part of the step that is narrower, over the whole, is not named above it
_STAGE_SIZE = 8.5


def draw_timeline(panel: Panel, point: Point) -> None:
    """Live bytes by category over the update with the peak, its parts and the peak marked."""
    assert point.prediction is not None
    timeline = point.prediction.timeline
    assert timeline is not None
    live = totals(timeline)
    most = max([*live, *timeline.reserved_bytes])
    per_unit, unit = byte_unit(most)
    x = timeline.positions
    shown = [c for c in CATEGORY_ROLES if any(timeline.bytes_by_category.get(c, ()))]
    axes = panel.axes
    axes.stackplot(
        x,
        *([b / per_unit for b in timeline.bytes_by_category[c]] for c in shown),
        colors=[panel.colours[CATEGORY_ROLES[c]] for c in shown],
        labels=[c.words for c in shown],
        linewidth=0,
        step="post",
    )
    if timeline.reserved_bytes:
        axes.plot(
            x,
            [b / per_unit for b in timeline.reserved_bytes],
            color=panel.colours["ink"],
            linewidth=1.1,
            linestyle=(0, (4, 2)),
            drawstyle="steps-post",
            label="reserved",
        )
    axes.set_xlim(x[0], max(x[-1], x[0] + 1))
    axes.set_ylim(0.0, _ROOM_ABOVE * most / per_unit)
    axes.set_xlabel("allocations and frees since the update began")
    axes.set_ylabel(f"live bytes, {unit}")
    axes.xaxis.grid(visible=False)
    _stages(panel, timeline, live, per_unit)
    _peak(panel, timeline, live, per_unit)
    legend_below(panel)


def _stages(panel: Panel, timeline: Timeline, live: list[int], per_unit: float) -> None:
    """A line where each part begins and its name above, where there is room for it."""
    x = timeline.positions
    whole = max(x[-1] - x[0], 1)
    names: list[tuple[float, str]] = []
    for stage, end, most in stage_spans(timeline, live):
        if stage.phase is None:
            continue
        left, right = x[stage.sample], x[min(end, len(x) - 1)]
        # Behind the stack, which would lose a narrow peak at the turn of two parts.
        panel.axes.axvline(left, color=panel.colours["muted"], linewidth=0.9, zorder=0.5)
        key = f"point-{len(panel.tips)}-{stage.sample}"
        panel.tips[key] = f"{stage_name(stage)}: at most {format_bytes(live[most])} live"
        panel.axes.plot(
            [x[most]], [live[most] / per_unit], "o", markersize=9, alpha=0.0, gid=key, zorder=6
        )
        if (right - left) / whole >= _SLIM:
            middle = ((left + right) / 2 - x[0]) / whole
            names.append((middle, stage_name(stage).replace(" of micro-step ", " ")))
    panel.names_above(names, size=_STAGE_SIZE)


def _peak(panel: Panel, timeline: Timeline, live: list[int], per_unit: float) -> None:
    place = timeline.positions[timeline.peak]
    most = live[timeline.peak]
    right_half = place > (timeline.positions[0] + timeline.positions[-1]) / 2
    panel.axes.plot(
        [place],
        [most / per_unit],
        marker="o",
        linestyle="none",
        markersize=7,
        markerfacecolor=panel.colours["surface"],
        markeredgecolor=panel.colours["ink"],
        markeredgewidth=1.6,
        zorder=7,
    )
    panel.axes.annotate(
        f"peak {format_bytes(most)}",
        (place, most / per_unit),
        xytext=(-9 if right_half else 9, -4),
        textcoords="offset points",
        ha="right" if right_half else "left",
        va="center",
        color=panel.colours["ink"],
        fontweight="bold",
        fontsize=9.0,
        bbox={"facecolor": panel.colours["surface"], "edgecolor": "none", "pad": 1.0, "alpha": 0.8},
        zorder=7,
    )


def draw_modules(panel: Panel, point: Point) -> None:
    """Bars: the modules that hold most at the peak, the largest first."""
    modules = ranked_modules(point)
    total = live_bytes(point)
    per_unit, unit = byte_unit(max(held for _, held in modules))
    axes = panel.axes
    for row, (name, held) in enumerate(modules):
        [bar] = axes.barh([row], [held / per_unit], height=0.36, color=panel.colours["series4"])
        key = f"bar-{len(panel.tips)}-{row}"
        bar.set_gid(key)
        share = f", {format_share(held / total)} of what is live" if total else ""
        text = f"{format_bytes(held)}{share}"
        panel.tips[key] = f"{name}: {text}"
        axes.annotate(
            drawable_text(f"{name}  {format_bytes(held)}", _MODULE_LETTERS),
            (0.0, row - 0.2),
            xytext=(1, 2),
            textcoords="offset points",
            va="bottom",
            color=panel.colours["ink"],
            fontsize=8.5,
        )
    axes.set_ylim(len(modules) - 0.6, -0.85)
    axes.set_yticks([])
    axes.yaxis.grid(visible=False)
    axes.set_xlim(0.0, 1.04 * max(held for _, held in modules) / per_unit)
    axes.set_xlabel(f"live at the peak, {unit}")
