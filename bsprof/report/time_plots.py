"""The figures about time: samples per second and seconds of a micro-step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bsprof.records import Origin, Point, PointStatus, Profile, Quantity, per_second
from bsprof.report.data import ProfileView, ReportData, SampledCurve
from bsprof.report.panel import Panel, knee_text, legend_below, second_unit, size_axis
from bsprof.report.theme import drawable_text, series_style
from bsprof.report.words import failure_text, quantity_text, status_text
from bsprof.units import format_count, format_seconds

_LEGEND_LETTERS, _HANDLE_LETTERS = 64, 6  # that fit below a figure, and that a mark takes
_LOG_TIMES = 12.0  # times that reach further than this are shown on a logarithmic axis


def micro_step_rate(point: Point) -> Quantity | None:
    """Samples per second in micro-steps: micro-batch over micro-step, without optimizer step.

    This is what many accumulation steps approach. Falls back on `samples_per_s` where the
    micro-step alone is not known; None without either.
    """
    if point.micro_step_s is not None and point.micro_step_s.low > 0:
        return per_second(point.micro_batch_size, point.micro_step_s)
    return point.samples_per_s


def rated_points(profile: Profile) -> list[tuple[Point, Quantity]]:
    """Points that ran, with their rate."""
    pairs = ((p, micro_step_rate(p)) for p in profile.points if p.failure is None)
    return [(point, rate) for point, rate in pairs if rate is not None]


def unmeasured_points(profile: Profile) -> list[Point]:
    """Sizes that were tried and have no numbers; none where no time was to be known."""
    if profile.origin is Origin.PREDICTED and not rated_points(profile):
        return []
    return [p for p in profile.points if p.failure is not None or p.status is not PointStatus.OK]


def draw_throughput(panel: Panel, data: ReportData) -> None:
    """Samples per second against micro-batch size: points, fit with band, knee and choice."""
    for index, view in enumerate(data.views):
        role, dash, marker = series_style(index)
        curve = view.throughput
        if curve is not None and len(curve.sizes) > 1:
            panel.curve(curve.sizes, curve.values, role, dash=dash, band=(curve.lows, curve.highs))
            _ring_between(panel, data, view, curve)
        chosen = data.chosen_size(view)
        for point, rate in rated_points(view.profile):
            panel.point(
                point.micro_batch_size,
                rate,
                role,
                f"{_where(data, view)}micro-batch {point.micro_batch_size}: "
                f"{quantity_text(rate, format_count)} samples/s, {status_text(point)}",
                marker=marker,
                hollow=not point.is_ok,
                chosen=point.micro_batch_size == chosen,
            )
    _crosses(panel, data)
    size_axis(panel, _shown_sizes(data))
    panel.axes.set_ylim(bottom=0.0)
    panel.axes.set_ylabel("samples/s in micro-steps")
    _flags(panel, data, with_knee=True)
    _finish(panel, data)


def draw_micro_step(panel: Panel, data: ReportData) -> None:
    """Seconds of a micro-step (and of an optimizer step, hollow) against micro-batch size."""
    steps = _seconds(data)
    per_unit, unit = second_unit(max(steps))
    for index, view in enumerate(data.views):
        role, dash, marker = series_style(index)
        curve = None if view.micro_step is None else view.micro_step.scaled(1 / per_unit)
        if curve is not None and len(curve.sizes) > 1:
            panel.curve(curve.sizes, curve.values, role, dash=dash, band=(curve.lows, curve.highs))
            _ring_between(panel, data, view, curve)
        for point in view.profile.points:
            _time_marks(panel, data, view, point, per_unit=per_unit, role=role, marker=marker)
    wide = max(steps) / min(steps) > _LOG_TIMES
    if wide:
        _logarithmic_times(panel)
    size_axis(panel, _shown_sizes(data))
    if not wide:
        panel.axes.set_ylim(bottom=0.0)
    _crosses(panel, data)
    panel.axes.set_ylabel(unit)
    _flags(panel, data, with_knee=False)
    if len(data.views) == 1 and any(p.optimizer_step_s for p in data.views[0].profile.points):
        _legend_of_steps(panel, "series1")
    _finish(panel, data)


def _time_marks(
    panel: Panel,
    data: ReportData,
    view: ProfileView,
    point: Point,
    *,
    per_unit: float,
    role: str,
    marker: str,
) -> None:
    size, where = point.micro_batch_size, _where(data, view)
    if point.optimizer_step_s is not None and len(data.views) == 1:
        panel.point(
            size,
            point.optimizer_step_s.scaled(1 / per_unit),
            "muted",
            f"{where}micro-batch {size}: optimizer step "
            f"{quantity_text(point.optimizer_step_s, format_seconds)}",
            marker="s",
            hollow=True,
        )
    if point.micro_step_s is not None:
        panel.point(
            size,
            point.micro_step_s.scaled(1 / per_unit),
            role,
            f"{where}micro-batch {size}: micro-step "
            f"{quantity_text(point.micro_step_s, format_seconds)}",
            marker=marker,
            hollow=not point.is_ok,
            chosen=size == data.chosen_size(view),
        )


def _logarithmic_times(panel: Panel) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = panel.axes.yaxis
    panel.axes.set_yscale("log")
    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_tick_params(which="minor", length=0)


def _seconds(data: ReportData) -> list[float]:
    points = [p for view in data.views for p in view.profile.points]
    steps = [p.micro_step_s.value for p in points if p.micro_step_s is not None]
    if len(data.views) == 1:
        steps += [p.optimizer_step_s.value for p in points if p.optimizer_step_s is not None]
    return [s for s in steps if s > 0]


def _shown_sizes(data: ReportData) -> list[float]:
    """Every size tried, but none so far beyond the last one that ran that it empties the plot."""
    sizes = [p.micro_batch_size for view in data.views for p in view.profile.points]
    ran = [p.micro_batch_size for view in data.views for p, _ in rated_points(view.profile)]
    return [float(s) for s in sizes if s <= 4 * max(ran, default=max(sizes))]


def _crosses(panel: Panel, data: ReportData) -> None:
    shown = set(_shown_sizes(data))
    for index, view in enumerate(data.views):
        for point in unmeasured_points(view.profile):
            if point.micro_batch_size in shown:
                why = failure_text(point) or status_text(point)
                tip = f"{_where(data, view)}micro-batch {point.micro_batch_size}: {why}"
                role = series_style(index)[0] if len(data.views) > 1 else "bad"
                panel.cross(point.micro_batch_size, tip, role, row=index)


def _where(data: ReportData, view: ProfileView) -> str:
    return f"{view.label}, " if len(data.views) > 1 else ""


def _flags(panel: Panel, data: ReportData, *, with_knee: bool) -> None:
    only = data.views[0] if len(data.views) == 1 else data.chosen_view
    if with_knee and only is not None and only.knee is not None:
        low, high = panel.axes.get_xlim()
        if low <= only.knee.value <= high:
            panel.flag(only.knee.value, knee_text(only.knee, only.knee_share), "muted")
    if data.chosen_view is not None and data.recommendation is not None:
        size = data.recommendation.plan.micro_batch_size
        panel.flag(size, f"recommended {size:,}", "ink")


def _finish(panel: Panel, data: ReportData) -> None:
    if len(data.views) > 1:
        profile_legend(panel, data.views, lambda view: bool(rated_points(view.profile)))
    panel.finish()


def _legend_of_steps(panel: Panel, role: str) -> None:
    surface, muted = panel.colours["surface"], panel.colours["muted"]
    panel.axes.plot([], [], color=panel.colours[role], marker="o", label="micro-step")
    panel.axes.plot(
        [],
        [],
        linestyle="none",
        marker="s",
        markerfacecolor=surface,
        markeredgecolor=muted,
        label="optimizer step",
    )
    legend_below(panel)


def _ring_between(
    panel: Panel, data: ReportData, view: ProfileView, curve: SampledCurve | None
) -> None:
    """A ring on the curve when the recommended size lies between measured ones."""
    size = data.chosen_size(view)
    if size is None or curve is None or view.profile.point(size) is not None:
        return
    value = curve.at(size)
    if value is not None:
        panel.ring(size, value)


def profile_legend(
    panel: Panel, views: Sequence[ProfileView], is_shown: Callable[[ProfileView], bool]
) -> None:
    """One entry per profile that is shown."""
    for index, view in enumerate(views):
        if not is_shown(view):
            continue
        role, dash, marker = series_style(index)
        panel.axes.plot(
            [],
            [],
            color=panel.colours[role],
            linestyle=dash,
            marker=marker,
            label=drawable_text(view.label),
        )
    legend_below(panel, columns=_columns(max(len(v.label) for v in views)))


def _columns(longest: int) -> int:
    """How many labels of so many letters a legend has room for beside each other."""
    return max(1, min(3, _LEGEND_LETTERS // (longest + _HANDLE_LETTERS)))
