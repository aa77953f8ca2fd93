"""The roofline: how fast each size computes, against how much it computes per byte it moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bsprof.measure.derive import COMPUTE_TYPE
from bsprof.records import DevicePeaks, Point, Profile, Quantity, per_second
from bsprof.report.data import ProfileView, ReportData
from bsprof.report.panel import Panel
from bsprof.report.theme import series_style
from bsprof.report.time_plots import profile_legend
from bsprof.report.words import quantity_text
from bsprof.units import format_count, format_rate

_TERA, _GIGA = 1e12, 1e9
_ROOM = 1.6  # factor of room around what is shown
_LEAST_REACH = 2.0  # the axis of intensity reaches at least this factor to either side of a ridge
_LABEL_SIZE = 8.5
_APART_ACROSS, _APART_UP = 15.0, 11.0  # marks nearer than this, in points, share one label


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofPoint:
    """One size: FLOPs per byte moved, and FLOP/s in its micro-steps."""

    point: Point
    intensity: float
    flops_per_s: Quantity


def roof_points(profile: Profile) -> list[RoofPoint]:
    """Sizes that ran, or are predicted to, with known work and time; none without peaks."""
    if profile.peaks is None or profile.peaks.bandwidth_bytes_per_s <= 0:
        return []
    found = []
    for point in profile.points:
        flops, moved, step = point.flops, point.bytes_moved, point.micro_step_s
        if point.failure is not None or flops is None or moved is None or step is None:
            continue
        if flops.value > 0 and moved.value > 0 and step.value > 0:
            found.append(
                RoofPoint(
                    point=point,
                    intensity=flops.value / moved.value,
                    flops_per_s=per_second(flops.value, step),
                )
            )
    return found


def ceiling(profile: Profile) -> float | None:
    """Peak FLOP/s of the profile's precision; None where it is not known."""
    if profile.peaks is None:
        return None
    return profile.peaks.flops_per_s.get(COMPUTE_TYPE[profile.workload.precision])


def roof_text(profile: Profile) -> str:
    """The ceilings in words: `165 TFLOP/s in bf16 and 1.01 TB/s (data sheet)`."""
    peaks = profile.peaks
    if peaks is None:
        return ""
    top = ceiling(profile)
    compute = COMPUTE_TYPE[profile.workload.precision]
    parts = [] if top is None else [f"{format_rate(top, 'FLOP/s')} in {compute}"]
    parts.append(format_rate(peaks.bandwidth_bytes_per_s, "B/s"))
    return f"{' and '.join(parts)} ({'measured' if peaks.are_measured else 'data sheet'})"


def draw_roofline(panel: Panel, data: ReportData) -> None:
    """Every size below the roofs of its profile, both axes logarithmic."""
    shown = [(i, view, roof_points(view.profile)) for i, view in enumerate(data.views)]
    shown = [(i, view, points) for i, view, points in shown if points]
    unit, name = _unit(shown)
    _axes(panel, shown, unit, name)
    for index, view, points in shown:
        role, dash, marker = series_style(index)
        assert view.profile.peaks is not None, "it has points"
        _roof(panel, view, view.profile.peaks, unit, role if len(shown) > 1 else "muted", dash)
        chosen = data.chosen_size(view)
        for at in points:
            size = at.point.micro_batch_size
            where = f"{view.label}, " if len(data.views) > 1 else ""
            panel.point(
                at.intensity,
                at.flops_per_s.scaled(1 / unit),
                role,
                f"{where}micro-batch {size}: {_words(at)}",
                marker=marker,
                hollow=not at.point.is_ok,
                chosen=size == chosen,
                key=size,
            )
        _labels(panel, points, unit, role if len(shown) > 1 else "soft")
        if len(shown) == 1:
            _names_of_roofs(panel, view, view.profile.peaks, unit)
    if len(shown) > 1:
        profile_legend(panel, data.views, lambda view: bool(roof_points(view.profile)))


def _words(at: RoofPoint) -> str:
    rate = quantity_text(at.flops_per_s, lambda value: format_rate(value, "FLOP/s"))
    return f"{rate}, {format_count(at.intensity)} FLOP/B, {at.point.regime} bound"


def _unit(shown: Sequence[tuple[int, ProfileView, list[RoofPoint]]]) -> tuple[float, str]:
    most = max(at.flops_per_s.value for _, _, points in shown for at in points)
    return (_TERA, "TFLOP/s") if most >= 0.1 * _TERA else (_GIGA, "GFLOP/s")


def _axes(
    panel: Panel,
    shown: Sequence[tuple[int, ProfileView, list[RoofPoint]]],
    unit: float,
    name: str,
) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes = panel.axes
    across = [at.intensity for _, _, points in shown for at in points]
    up = [q for _, _, points in shown for at in points for q in _ends(at.flops_per_s)]
    for _, view, points in shown:
        top, peaks = ceiling(view.profile), view.profile.peaks
        assert peaks is not None, "it has points"
        if top is None:
            up.append(peaks.bandwidth_bytes_per_s * max(at.intensity for at in points))
        else:
            ridge = top / peaks.bandwidth_bytes_per_s
            across += [ridge / _LEAST_REACH, ridge * _LEAST_REACH]
            up.append(top)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(across) / _ROOM, max(across) * _ROOM)
    axes.set_ylim(min(up) / unit / _ROOM, max(up) / unit * _ROOM)
    axes.set_xlabel("FLOPs per byte moved")
    axes.set_ylabel(f"{name} in micro-steps")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0), numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_formatter(NullFormatter())
        axis.set_tick_params(which="minor", length=0)


def _ends(quantity: Quantity) -> tuple[float, float]:
    return max(quantity.low, 0.1 * quantity.value), quantity.high


def _roof(
    panel: Panel, view: ProfileView, peaks: DevicePeaks, unit: float, role: str, dash: object
) -> None:
    """The slope of the memory's bandwidth up to the ceiling, and the ceiling."""
    low, high = panel.axes.get_xlim()
    top, slope = ceiling(view.profile), peaks.bandwidth_bytes_per_s
    corner = high if top is None else min(max(top / slope, low), high)
    across = [low, corner, high]
    up = [min(slope * x, math.inf if top is None else top) / unit for x in across]
    panel.axes.plot(
        across, up, color=panel.colours[role], linestyle=dash, linewidth=1.6, zorder=1.5
    )


def _labels(panel: Panel, points: Sequence[RoofPoint], unit: float, role: str) -> None:
    """The micro-batch beside each mark; marks that nearly touch share a label: `8 to 22`.

    Left of the mark, but for the largest sizes: as sizes grow, marks go to the right.
    """
    pixels = 72.0 / panel.axes.figure.dpi
    groups: list[list[RoofPoint]] = []
    largest = (0.0, 0.0)
    for at in sorted(points, key=lambda at: -at.point.micro_batch_size):
        place = panel.axes.transData.transform((at.intensity, at.flops_per_s.value / unit))
        x, y = (float(pixel) * pixels for pixel in place)
        if groups and abs(x - largest[0]) < _APART_ACROSS and abs(y - largest[1]) < _APART_UP:
            groups[-1].append(at)
        else:
            groups.append([at])
            largest = x, y
    for group in groups:
        sizes = [at.point.micro_batch_size for at in group]
        text = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[-1]:,} to {sizes[0]:,}"
        rightwards = group is groups[0]
        pick = max if rightwards else min
        beside = pick(group, key=lambda at: at.intensity)
        panel.axes.annotate(
            text,
            (beside.intensity, beside.flops_per_s.value / unit),
            xytext=(8 if rightwards else -7, 0),
            textcoords="offset points",
            ha="left" if rightwards else "right",
            va="center",
            color=panel.colours[role],
            fontsize=_LABEL_SIZE,
            zorder=6,
        )


def _names_of_roofs(panel: Panel, view: ProfileView, peaks: DevicePeaks, unit: float) -> None:
    """The ceilings' own numbers beside their lines, where there is one roof."""
    low, high = panel.axes.get_xlim()
    top, slope = ceiling(view.profile), peaks.bandwidth_bytes_per_s
    style: dict[str, Any] = {
        "color": panel.colours["ink"],
        "fontsize": _LABEL_SIZE,
        "textcoords": "offset points",
    }
    if top is not None:
        text = f"{format_rate(top, 'FLOP/s')} {COMPUTE_TYPE[view.profile.workload.precision]}"
        panel.axes.annotate(text, (high, top / unit), xytext=(-2, 4), ha="right", **style)
    corner = high if top is None else min(top / slope, high)
    if corner > low:
        x = math.sqrt(low * corner)
        text = format_rate(slope, "B/s")
        panel.axes.annotate(text, (x, slope * x / unit), xytext=(-6, 5), ha="right", **style)
