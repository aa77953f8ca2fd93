"""The memory limit in a figure, and the limit less the headroom that was asked for."""

from __future__ import annotations

from collections.abc import Iterable

from bsprof.report.data import ReportData
from bsprof.report.panel import Panel
from bsprof.units import format_bytes

_FAR_LIMIT = 3.0  # a limit beyond this many times what is shown is named, not drawn


def is_near(limit: int, shown_bytes: float) -> bool:
    """Whether a limit is drawn in a figure that shows so many bytes; else it is only named."""
    return limit <= _FAR_LIMIT * shown_bytes


def draw_limits(
    panel: Panel, data: ReportData, limits: Iterable[int], shown_bytes: float, per_unit: float
) -> None:
    """A line at each limit, and a dotted one below the one that the recommendation was held to."""
    for limit in sorted(set(limits)):
        text = f"usable {format_bytes(limit)}"
        if not is_near(limit, shown_bytes):
            panel.axes.text(
                0.01,
                0.98,
                f"{text}, far above",
                transform=panel.axes.transAxes,
                va="top",
                color=panel.colours["ink"],
                fontsize=9.0,
            )
            continue
        _limit_line(panel, limit / per_unit, text, "bad", "-")
        _headroom_line(panel, data, limit, per_unit)
        top = panel.axes.get_ylim()[1]
        panel.axes.set_ylim(0.0, max(top, 1.12 * limit / per_unit))


def _headroom_line(panel: Panel, data: ReportData, limit: int, per_unit: float) -> None:
    view, recommendation = data.chosen_view, data.recommendation
    if view is None or recommendation is None or view.profile.device.usable_bytes != limit:
        return
    target = recommendation.target
    free = target.headroom_bytes
    free = round(limit * target.headroom_share) if free is None else free
    if 0 < free < limit:
        _limit_line(panel, (limit - free) / per_unit, "", "bad", (0, (1, 3)))


def _limit_line(panel: Panel, value: float, text: str, role: str, dash: object) -> None:
    panel.axes.axhline(value, color=panel.colours[role], linewidth=1.4, linestyle=dash)
    if text:
        panel.axes.annotate(
            text,
            (0.01, value),
            xycoords=panel.axes.get_yaxis_transform(),
            xytext=(0, 3),
            textcoords="offset points",
            va="bottom",
            color=panel.colours["ink"],
            fontsize=9.0,
            bbox={"facecolor": panel.colours["surface"], "edgecolor": "none", "pad": 1.0},
        )
