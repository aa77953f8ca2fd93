"""Profiles and a recommendation to the data of a report: fits, sampled curves, labels."""

from __future__ import annotations

from collections.abc import Sequence

from bsprof.errors import FitError, UsageError
from bsprof.fit.knee import KNEE_SHARE, throughput_shape
from bsprof.recommend.compare import compare_profiles
from bsprof.recommend.compared import Comparison
from bsprof.recommend.differences import labels
from bsprof.records import (
    MemoryFit,
    Origin,
    Phase,
    PhaseLine,
    Point,
    Profile,
    Quantity,
    Recommendation,
    TimeFit,
    per_second,
)
from bsprof.report.data import ProfileView, ReportData, SampledCurve

_SAMPLES = 80  # sizes per curve: smooth at the width of a page
_LARGEST_EXTRAPOLATION = 10.0  # memory is drawn up to this many times the last measured size


def build_report(
    profiles: Sequence[tuple[str, Profile]],
    recommendation: Recommendation | None = None,
    comparison: Comparison | None = None,
) -> ReportData:
    """The data of a report on one or several profiles.

    A profile whose curves cannot be fitted is shown without them, and the report says why.

    Args:
        profiles: Name and profile, in the order in which they are shown.
        recommendation: The answer to show at the top; None when no target was given.
        comparison: How the profiles compare; None compares several by their fastest sizes.

    Raises:
        UsageError: no profile was given.
    """
    if not profiles:
        raise UsageError(
            "a report needs at least one profile", next_step="run `bsprof sweep` first"
        )
    if comparison is None and len(profiles) > 1:
        comparison = compare_profiles(profiles)
    views = tuple(
        _view(name, label, profile)
        for (name, profile), label in zip(profiles, labels(profiles), strict=True)
    )
    if len(views) == 1:
        only = views[0].profile
        title = f"{only.workload.model} on {only.device.name or only.device.kind}"
    else:
        title = f"{len(views)} profiles compared"
    return ReportData(
        title=title,
        views=views,
        recommendation=recommendation,
        chosen=_chosen(views, recommendation),
        comparison=comparison,
    )


def _chosen(views: tuple[ProfileView, ...], recommendation: Recommendation | None) -> int | None:
    if recommendation is None:
        return None
    named = [i for i, view in enumerate(views) if view.name == recommendation.profile]
    if named:
        return named[0]
    # A recommendation without a name can only belong to the one profile there is.
    return 0 if len(views) == 1 and not recommendation.profile else None


def _view(name: str, label: str, profile: Profile) -> ProfileView:
    if profile.origin is Origin.PREDICTED:
        return _predicted_view(name, label, profile)
    time_fit, time_problem = _fit_time(profile)
    step = None if time_fit is None else _time_curve(time_fit)
    memory_fit, memory_problem = _fit_memory(profile)
    return ProfileView(
        name=name,
        label=label,
        profile=profile,
        time_fit=time_fit,
        memory_fit=memory_fit,
        throughput=None if step is None else _throughput_curve(step),
        micro_step=step,
        memory=None if memory_fit is None else _memory_curve(memory_fit, profile),
        memory_by_phase=(
            {}
            if memory_fit is None
            else {line.phase: _line_curve(line, memory_fit, profile) for line in memory_fit.lines}
        ),
        saturation=None if time_fit is None else time_fit.saturation,
        knee=None if time_fit is None else time_fit.knee,
        knee_share=KNEE_SHARE if time_fit is None else time_fit.knee_share,
        problems=tuple(p for p in (time_problem, memory_problem) if p),
    )


def _predicted_view(name: str, label: str, profile: Profile) -> ProfileView:
    """Everything as it was predicted: each size was computed, and nothing is fitted."""
    step = _predicted_times(profile)
    shape = throughput_shape(profile.ok_points())
    timed = any(p.micro_step_s is not None for p in profile.points)
    return ProfileView(
        name=name,
        label=label,
        profile=profile,
        throughput=None if step is None else _throughput_curve(step),
        micro_step=step,
        memory=_predicted_memory(profile),
        memory_by_phase=_predicted_phases(profile),
        saturation=shape.saturation if timed else None,
        knee=shape.knee,
    )


def _fit_time(profile: Profile) -> tuple[TimeFit | None, str]:
    from bsprof.fit.time import fit_time

    try:
        return fit_time(profile.ok_points()), ""
    except FitError as error:
        return None, f"No curve through the times: {error.found or error.doing}."


def _fit_memory(profile: Profile) -> tuple[MemoryFit | None, str]:
    from bsprof.fit.memory import fit_memory

    try:
        return fit_memory(profile.ok_points()), ""
    except FitError as error:
        return None, f"No line through the memory peaks: {error.found or error.doing}."


def sampled_sizes(low: int, high: int) -> tuple[int, ...]:
    """Increasing whole sizes from low to high, both included, evenly spaced in ratio."""
    if high <= low:
        return (low,)
    ratio = high / low
    steps = range(_SAMPLES + 1)
    return tuple(sorted({round(low * ratio ** (step / _SAMPLES)) for step in steps}))


def _curve(sizes: tuple[int, ...], values: list[Quantity], measured_to: int) -> SampledCurve:
    return SampledCurve(
        sizes=sizes,
        values=tuple(q.value for q in values),
        lows=tuple(q.low for q in values),
        highs=tuple(q.high for q in values),
        measured_to=measured_to,
    )


def _time_curve(fit: TimeFit) -> SampledCurve:
    from bsprof.fit.time import predict_time

    sizes = sampled_sizes(fit.low_micro_batch_size, fit.high_micro_batch_size)
    return _curve(sizes, [predict_time(fit, b)[0] for b in sizes], fit.high_micro_batch_size)


def _throughput_curve(step: SampledCurve) -> SampledCurve | None:
    """b over the micro-step's seconds; None where the fit allows a time of zero or less."""
    rows = list(zip(step.sizes, step.values, step.lows, step.highs, strict=True))
    if any(low <= 0 for _, _, low, _ in rows):
        return None
    rates = [per_second(b, Quantity(value=v, low=lo, high=hi)) for b, v, lo, hi in rows]
    return _curve(step.sizes, rates, step.measured_to)


def _predicted_times(profile: Profile) -> SampledCurve | None:
    """Through the predicted times themselves, in straight lines as the knee is found on."""
    known = [(p.micro_batch_size, p.micro_step_s) for p in profile.points]
    steps = {size: step for size, step in known if step is not None and step.low > 0}
    if len(steps) < 2:
        return None
    own = tuple(sorted(steps))
    through = _curve(own, [steps[size] for size in own], own[-1])
    sizes = tuple(sorted({*own, *sampled_sizes(own[0], own[-1])}))
    return through.at_sizes(sizes)


def _predicted_memory(profile: Profile) -> SampledCurve | None:
    """Through the predicted peaks themselves: each size was computed, and nothing is fitted."""
    known = [(p, p.device_used_bytes) for p in profile.points]
    pairs = [(p.micro_batch_size, used) for p, used in known if used is not None]
    if len(pairs) < 2:
        return None
    return _curve(tuple(size for size, _ in pairs), [used for _, used in pairs], pairs[-1][0])


def _predicted_phases(profile: Profile) -> dict[Phase, SampledCurve]:
    """What each phase would need alone: its live bytes, and what the device holds beyond them.

    The device's own numbers by phase do not tell phases apart: an allocator keeps what the phase
    before had.
    """
    curves = {}
    for phase in Phase:
        pairs = [(p.micro_batch_size, _of_phase(p, phase)) for p in profile.points]
        known = [(size, Quantity.exact(used)) for size, used in pairs if used is not None]
        if len(known) > 1:
            sizes = tuple(size for size, _ in known)
            curves[phase] = _curve(sizes, [used for _, used in known], sizes[-1])
    return curves


def _of_phase(point: Point, phase: Phase) -> float | None:
    live = {} if point.memory is None else point.memory.allocated_by_phase_bytes
    if phase not in live or point.device_used_bytes is None:
        return None
    return point.device_used_bytes.value - max(live.values()) + live[phase]


def _memory_sizes(fit: MemoryFit, profile: Profile) -> tuple[int, ...]:
    """From the smallest measured size to where memory runs out, as far as that is drawn."""
    measured_to = fit.high_micro_batch_size
    largest, failed = profile.max_micro_batch_size, profile.smallest_too_big()
    ends = [float(measured_to)]
    if largest is not None:
        ends.append(largest.high)
    if failed is not None:
        ends.append(failed.micro_batch_size)
    reach = measured_to * _LARGEST_EXTRAPOLATION if fit.slope_visible else measured_to
    end = int(min(max(ends), reach))
    # The measured end is a sample of its own: there the drawn line turns into a dashed one.
    return tuple(sorted({*sampled_sizes(fit.low_micro_batch_size, end), measured_to}))


def _memory_curve(fit: MemoryFit, profile: Profile) -> SampledCurve:
    from bsprof.fit.memory import predict_memory

    sizes = _memory_sizes(fit, profile)
    return _curve(sizes, [predict_memory(fit, b)[0] for b in sizes], fit.high_micro_batch_size)


def _line_curve(line: PhaseLine, fit: MemoryFit, profile: Profile) -> SampledCurve:
    sizes = _memory_sizes(fit, profile)
    values = [Quantity.exact(line.base_bytes + line.slope_bytes * b) for b in sizes]
    return _curve(sizes, values, fit.high_micro_batch_size)
