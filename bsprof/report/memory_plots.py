"""The figure of peak memory against micro-batch size."""

from __future__ import annotations

from bsprof.records import Origin, Phase, Point, Profile
from bsprof.report.data import ProfileView, ReportData, SampledCurve
from bsprof.report.limits import draw_limits
from bsprof.report.panel import Panel, byte_unit, legend_below, size_axis
from bsprof.report.theme import PHASE_ROLES, series_style
from bsprof.report.time_plots import profile_legend
from bsprof.report.words import PHASE_NAMES, quantity_text, size_range_text
from bsprof.units import format_bytes

_SAME_PEAK = 0.995  # a phase this close to the peak of all is not marked on its own


def peaks_known(profile: Profile) -> bool:
    """Whether some point knows what counts against the limit."""
    return any(p.device_used_bytes is not None for p in profile.points)


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
    limits = [view.profile.device.usable_bytes for view in views]
    draw_limits(panel, data, limits, max(_shown_bytes(view) for view in views), per_unit)
    if len(data.views) > 1:
        profile_legend(panel, data.views, lambda view: peaks_known(view.profile))
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
        if view.profile.origin is Origin.PREDICTED:  # with its interval, in its phase's colour
            role = PHASE_ROLES[point.peak_phase] if point.peak_phase else "series1"
            _peak_mark(panel, data, view, point, per_unit, role)
            continue
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
