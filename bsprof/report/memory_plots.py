"""The figures about memory: the peak against micro-batch size, and who owns it."""

from __future__ import annotations

from collections.abc import Sequence

from bsprof.records import Phase, Point, Profile
from bsprof.report.data import ProfileView, ReportData, SampledCurve
from bsprof.report.panel import Panel, byte_unit, legend_below, size_axis
from bsprof.report.theme import CATEGORY_ROLES, PHASE_ROLES, series_style
from bsprof.report.time_plots import profile_legend
from bsprof.report.words import CATEGORY_NAMES, PHASE_NAMES, quantity_text, size_range_text
from bsprof.units import format_bytes

_FAR_LIMIT = 3.0  # a limit beyond this many times what is shown is named, not drawn
_SAME_PEAK = 0.995  # a phase this close to the peak of all is not marked on its own
_LABELLED_BARS = 16
_FEWEST_BARS = 5  # fewer bars are drawn as if there were this many: slim, in the middle


def peaks_known(profile: Profile) -> bool:
    """Whether some point knows what counts against the limit."""
    return any(p.device_used_bytes is not None for p in profile.points)


def categories_known(profile: Profile) -> bool:
    """Whether some point knows whose bytes its peak is made of."""
    return any(p.peak_by_category_bytes for p in profile.points)


def largest_is_shown(view: ProfileView) -> bool:
    """Whether the largest size that fits is known and lies within the memory figure."""
    largest = view.profile.max_micro_batch_size
    sizes = _sizes(view)
    return largest is not None and bool(sizes) and largest.value <= 1.05 * max(sizes)


def draw_memory(panel: Panel, data: ReportData) -> None:
    """Peak memory against micro-batch size: by phase for one profile, else one line each."""
    views = [view for view in data.views if peaks_known(view.profile)]
    per_unit, unit = byte_unit(max(_shown_bytes(view) for view in views))
    if len(data.views) == 1:
        _draw_phases(panel, data, views[0], per_unit)
    else:
        for index, view in enumerate(data.views):
            _draw_peak(panel, data, view, index, per_unit)
    size_axis(panel, [s for view in views for s in _sizes(view)], logarithmic=False)
    panel.axes.set_ylim(bottom=0.0)
    panel.axes.set_ylabel(f"memory used, {unit}")
    _draw_limits(panel, data, views, per_unit)
    if len(data.views) > 1:
        profile_legend(panel, data.views)
    else:
        _draw_largest(panel, views[0])
        legend_below(panel)
    if data.chosen_view in views and data.recommendation is not None:
        size = data.recommendation.plan.micro_batch_size
        panel.flag(size, f"recommended {size:,}", "ink")
    panel.finish()


def _draw_phases(panel: Panel, data: ReportData, view: ProfileView, per_unit: float) -> None:
    for phase, curve in view.memory_by_phase.items():
        line, role = curve.scaled(1 / per_unit), PHASE_ROLES[phase]
        measured = line.up_to(line.measured_to)
        panel.curve(measured.sizes, measured.values, role, label=PHASE_NAMES[phase])
        _extrapolated(panel, line, role)
    labelled = set(view.memory_by_phase)
    for point in view.profile.points:
        phases = {} if point.memory is None else point.memory.device_used_by_phase_bytes
        if not phases:
            _peak_mark(panel, data, view, point, per_unit, "series1")
            continue
        peak = point.peak_phase or max(phases, key=lambda phase: phases[phase])
        for phase in sorted(phases, key=lambda phase: phase == peak):
            # On the CPU a process keeps what it had: later phases repeat the peak of the first.
            if phase is not peak and phases[phase] >= _SAME_PEAK * phases.get(peak, 0):
                continue
            label = None if phase in labelled else PHASE_NAMES[phase]
            labelled.add(phase)
            _phase_mark(panel, point, phase, phases[phase] / per_unit, label)
        _peak_mark(panel, data, view, point, per_unit, None)
    if view.memory is not None:
        band = view.memory.scaled(1 / per_unit)
        panel.axes.fill_between(
            band.sizes, band.lows, band.highs, color=panel.colours["muted"], alpha=0.16, linewidth=0
        )


def _phase_mark(panel: Panel, point: Point, phase: Phase, used: float, label: str | None) -> None:
    panel.axes.plot(
        [point.micro_batch_size],
        [used],
        marker="o",
        linestyle="none",
        markersize=5.5,
        markerfacecolor=panel.colours[PHASE_ROLES[phase]],
        markeredgecolor=panel.colours["surface"],
        label=label,
        zorder=3,
    )


def _peak_mark(
    panel: Panel,
    data: ReportData,
    view: ProfileView,
    point: Point,
    per_unit: float,
    role: str | None,
) -> None:
    """The point's peak: a mark of its own, or (role None) only what pointer and ring need."""
    if point.device_used_bytes is None:
        return
    size, used = point.micro_batch_size, point.device_used_bytes
    where = f"{view.label}, " if len(data.views) > 1 else ""
    phase = f", in {PHASE_NAMES[point.peak_phase]}" if point.peak_phase else ""
    tip = f"{where}micro-batch {size}: {quantity_text(used, format_bytes)}{phase}"
    chosen = size == data.chosen_size(view)
    if role is not None:
        marker = series_style(data.views.index(view))[2]
        panel.point(
            size,
            used.scaled(1 / per_unit),
            role,
            tip,
            marker=marker,
            hollow=not point.is_ok,
            chosen=chosen,
        )
        return
    key = f"point-{len(panel.tips)}-{size}"
    panel.tips[key] = tip
    panel.axes.plot(
        [size], [used.value / per_unit], "o", markersize=9, alpha=0.0, gid=key, zorder=6
    )
    if chosen:
        panel.ring(size, used.value / per_unit)


def _draw_peak(
    panel: Panel, data: ReportData, view: ProfileView, index: int, per_unit: float
) -> None:
    role, dash, _ = series_style(index)
    if view.memory is not None:
        line = view.memory.scaled(1 / per_unit)
        measured = line.up_to(line.measured_to)
        panel.curve(
            measured.sizes, measured.values, role, dash=dash, band=(measured.lows, measured.highs)
        )
        _extrapolated(panel, line, role)
    for point in view.profile.points:
        _peak_mark(panel, data, view, point, per_unit, role)


def _extrapolated(panel: Panel, line: SampledCurve, role: str) -> None:
    rest = line.beyond(line.measured_to)
    if len(rest.sizes) > 1:
        panel.axes.plot(
            rest.sizes,
            rest.values,
            color=panel.colours[role],
            linestyle=(0, (2, 2)),
            linewidth=1.4,
        )


def _draw_limits(
    panel: Panel, data: ReportData, views: Sequence[ProfileView], per_unit: float
) -> None:
    shown = max(_shown_bytes(view) for view in views)
    for limit in sorted({view.profile.device.usable_bytes for view in views}):
        text = f"usable {format_bytes(limit)}"
        if limit > _FAR_LIMIT * shown:
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


def _draw_largest(panel: Panel, view: ProfileView) -> None:
    largest = view.profile.max_micro_batch_size
    if largest is None or not largest_is_shown(view):
        return
    panel.span(largest, "bad")
    panel.flag(largest.value, f"largest that fits {size_range_text(largest)}", "bad")


def _sizes(view: ProfileView) -> list[float]:
    sizes = [float(p.micro_batch_size) for p in view.profile.points if p.device_used_bytes]
    return sizes + ([] if view.memory is None else [float(s) for s in view.memory.sizes])


def _shown_bytes(view: ProfileView) -> float:
    used = [p.device_used_bytes.value for p in view.profile.points if p.device_used_bytes]
    return max(used + ([] if view.memory is None else list(view.memory.values)))


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
            width=0.72,
            bottom=floor,
            color=panel.colours[role],
            edgecolor=panel.colours["surface"],
            linewidth=0.5,
            label=CATEGORY_NAMES[category],
        )
        for bar, point, part in zip(bars, points, parts, strict=True):
            key = f"bar-{len(panel.tips)}-{point.micro_batch_size}"
            bar.set_gid(key)
            panel.tips[key] = (
                f"micro-batch {point.micro_batch_size}: {CATEGORY_NAMES[category]} "
                f"{format_bytes(part * per_unit)}"
            )
        floor = [low + part for low, part in zip(floor, parts, strict=True)]
    _category_axis(panel, points, chosen)
    panel.axes.set_ylabel(f"live tensors at the peak, {unit}")
    legend_below(panel)


def _category_axis(panel: Panel, points: Sequence[Point], chosen: int | None) -> None:
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
