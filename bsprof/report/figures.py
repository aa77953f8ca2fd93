"""Which figures a report has, what each says in words, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable

from bsprof.records import Origin, Saturation
from bsprof.report.category_plots import categories_known, draw_categories
from bsprof.report.class_plots import draw_classes
from bsprof.report.data import ProfileView, ReportData
from bsprof.report.drawing import Drawing
from bsprof.report.memory_plots import draw_memory, largest_is_shown, peaks_known
from bsprof.report.predicted_figures import predicted_drawings
from bsprof.report.roofline_plots import draw_roofline, roof_points, roof_text
from bsprof.report.theme import CATEGORY_ROLES
from bsprof.report.time_classes import WAITING, class_points, portions
from bsprof.report.time_plots import (
    draw_micro_step,
    draw_throughput,
    rated_points,
    unmeasured_points,
)
from bsprof.report.words import plan_text, size_range_text
from bsprof.units import format_bytes, format_count, format_rate, format_seconds, format_share

_SATURATION_TEXTS = {
    Saturation.SATURATED: "The curve rises, then levels off within the {found} range.",
    Saturation.RISING: "The curve still rises at the largest {found} size.",
    Saturation.FLAT: "The curve is flat: every size does about the same.",
    Saturation.FALLING: "The curve falls: the smallest sizes are the fastest per sample.",
    Saturation.UNKNOWN: "There are too few points to say where the curve goes.",
}


def drawings(data: ReportData) -> tuple[Drawing, ...]:
    """The figures that this report has data for; none when no size ran."""
    found = []
    if any(rated_points(view.profile) for view in data.views):
        found.append(_throughput(data))
    if any(p.micro_step_s for view in data.views for p in view.profile.points):
        found.append(_micro_step(data))
    if any(roof_points(view.profile) for view in data.views):
        found.append(_roofline(data))
    for index, view in enumerate(data.views):
        if class_points(view.profile):
            found.append(_classes(data, view, index))
    if any(peaks_known(view.profile) for view in data.views):
        found.append(_memory(data))
    for index, view in enumerate(data.views):
        if view.profile.origin is Origin.PREDICTED:
            found += predicted_drawings(data, view, index)
        elif categories_known(view.profile):
            found.append(_categories(data, view, index))
    return tuple(found)


def _throughput(data: ReportData) -> Drawing:
    lines = []
    if len(data.views) == 1:
        [view] = data.views
        if view.saturation is not None:
            found = view.profile.origin
            lines.append(_SATURATION_TEXTS[view.saturation].format(found=found))
        if view.knee is not None:
            lines.append(
                f"From the knee on, {size_range_text(view.knee)}, a size reaches "
                f"{format_share(view.knee_share)} of what the largest would."
            )
    lines.append("Micro-batch over micro-step time: what many accumulation steps approach.")
    lines.append(_band_text(data))
    return Drawing(
        key="throughput",
        title="Throughput",
        caption=" ".join(line for line in lines if line),
        alternative=_alternative("Samples per second against micro-batch size", data, _rate_words),
        draw=lambda panel: draw_throughput(panel, data),
    )


def _micro_step(data: ReportData) -> Drawing:
    text = "Seconds of one forward and backward."
    if len(data.views) == 1 and any(p.optimizer_step_s for p in data.views[0].profile.points):
        text += " Hollow squares: the optimizer step, paid once per update."
    return Drawing(
        key="micro-step",
        title="Time of a micro-step",
        caption=f"{text} {_band_text(data)}".rstrip(),
        alternative=_alternative("Micro-step time against micro-batch size", data, _time_words),
        draw=lambda panel: draw_micro_step(panel, data),
    )


def _roofline(data: ReportData) -> Drawing:
    views = [view for view in data.views if roof_points(view.profile)]
    several = len(data.views) > 1
    roofs = [roof_text(view.profile) for view in views]
    named = [f"{v.label}: {text}" for v, text in zip(views, roofs, strict=True)]
    return Drawing(
        key="roofline",
        title="Roofline",
        caption="FLOP/s of a micro-step against FLOPs per byte that its operators read and write; "
        "numbers: micro-batch. Line: the device's ceilings, "
        f"{'; '.join(named if several else roofs)}. On the slope memory traffic limits, on the "
        "flat part arithmetic; how far a mark lies below is what launches, small shapes and "
        "kernels cost.",
        alternative=_alternative("FLOP/s against FLOPs per byte", data, _roof_words),
        draw=lambda panel: draw_roofline(panel, data),
    )


def _classes(data: ReportData, view: ProfileView, index: int) -> Drawing:
    several = len(data.views) > 1
    last = class_points(view.profile)[-1]
    parts = portions(last)
    whole = sum(part.seconds for part in parts)
    shares = ", ".join(f"{part.name} {format_share(part.seconds / whole)}" for part in parts)
    waits = any(p.name == WAITING for at in class_points(view.profile) for p in portions(at))
    lines = ["Shares of a micro-step by the kind of work that the device does."]
    if waits:
        lines.append("Waiting: for the host to start operators, or for other ranks.")
    return Drawing(
        key=f"classes-{index}" if several else "classes",
        title=f"Where the time goes: {view.label}" if several else "Where the time goes",
        caption=" ".join(lines),
        alternative=f"Stacked bars of shares by micro-batch size. At {last.micro_batch_size}: "
        f"{shares}.",
        draw=lambda panel: draw_classes(panel, view, data.chosen_size(view)),
        legend_rows=3,
    )


def _memory(data: ReportData) -> Drawing:
    several = len(data.views) > 1
    by_phase = not several and data.views[0].memory_by_phase
    lines = ["Peak of what counts against the limit" + (", by phase." if by_phase else ".")]
    if any(v.memory is not None and v.memory.sizes[-1] > v.memory.measured_to for v in data.views):
        lines.append("Dashed: extrapolated beyond the measured sizes.")
    if any(view.profile.origin is Origin.PREDICTED for view in data.views):
        lines.append("Shaded band: 90 % interval of predictions.")
    if data.recommendation is not None and data.chosen is not None:
        lines.append("Dotted line: the limit less the headroom asked for.")
    largest = None if several else data.views[0].profile.max_micro_batch_size
    if largest is not None and largest_is_shown(data.views[0]):
        lines.append("Shaded range: 90 % interval of the largest size that fits.")
    elif largest is not None:
        lines.append(f"The largest that fits, {size_range_text(largest)}, lies beyond the figure.")
    return Drawing(
        key="memory",
        title="Memory",
        caption=" ".join(lines),
        alternative=_alternative("Peak memory against micro-batch size", data, _memory_words),
        draw=lambda panel: draw_memory(panel, data),
    )


def _categories(data: ReportData, view: ProfileView, index: int) -> Drawing:
    several = len(data.views) > 1
    last = [p for p in view.profile.points if p.peak_by_category_bytes][-1]
    shares = ", ".join(
        f"{category.words} {format_bytes(last.peak_by_category_bytes[category])}"
        for category in CATEGORY_ROLES
        if last.peak_by_category_bytes.get(category)
    )
    return Drawing(
        key=f"categories-{index}" if several else "categories",
        title=f"Who owns the peak: {view.label}" if several else "Who owns the peak",
        caption="Bytes of live tensors when most are alive, without what the allocator and the "
        "libraries hold on top.",
        alternative=f"Stacked bars of the peak by micro-batch size. At {last.micro_batch_size}: "
        f"{shares}.",
        draw=lambda panel: draw_categories(panel, view, data.chosen_size(view)),
    )


def _band_text(data: ReportData) -> str:
    fitted = any(view.micro_step is not None for view in data.views)
    text = "Bars and shaded band: 90 % intervals." if fitted else "Bars: 90 % intervals."
    failed = [view for view in data.views if unmeasured_points(view.profile)]
    if not failed:
        return text
    predicted = {view.profile.origin is Origin.PREDICTED for view in failed}
    words = "did not run, or do not fit" if len(predicted) > 1 else "did not run"
    return f"{text} Crosses: sizes that {'do not fit' if predicted == {True} else words}."


def _alternative(what: str, data: ReportData, words: Callable[[ProfileView], str]) -> str:
    parts = [f"{view.label}: {text}" for view in data.views if (text := words(view))]
    if data.recommendation is not None and data.chosen is not None:
        parts.append(f"recommended: {plan_text(data.recommendation)}")
    return f"{what}. " + "; ".join(parts) + "."


def _rate_words(view: ProfileView) -> str:
    pairs = rated_points(view.profile)
    if not pairs:
        return "no size ran"
    (first, slow), (last, fast) = pairs[0], pairs[-1]
    text = f"{format_count(slow.value)} samples/s at {first.micro_batch_size}"
    if last is not first:
        text += f", {format_count(fast.value)} at {last.micro_batch_size}"
    return text


def _time_words(view: ProfileView) -> str:
    timed = [(p, p.micro_step_s) for p in view.profile.points if p.micro_step_s is not None]
    if not timed:
        return ""
    (first, short), (last, long) = timed[0], timed[-1]
    return (
        f"{format_seconds(short.value)} at {first.micro_batch_size}, "
        f"{format_seconds(long.value)} at {last.micro_batch_size}"
    )


def _roof_words(view: ProfileView) -> str:
    points = roof_points(view.profile)
    if not points:
        return ""
    ends = [points[0]] if len(points) == 1 else [points[0], points[-1]]
    rates = ", ".join(
        f"{format_rate(at.flops_per_s.value, 'FLOP/s')} at {at.point.micro_batch_size}"
        for at in ends
    )
    return f"{rates}; ceilings {roof_text(view.profile)}"


def _memory_words(view: ProfileView) -> str:
    known = [p for p in view.profile.points if p.device_used_bytes is not None]
    if not known:
        return ""
    used = known[-1].device_used_bytes
    assert used is not None
    limit = format_bytes(view.profile.device.usable_bytes)
    text = f"{format_bytes(used.value)} at {known[-1].micro_batch_size} of {limit} usable"
    largest = view.profile.max_micro_batch_size
    return text if largest is None else f"{text}, largest that fits {size_range_text(largest)}"
