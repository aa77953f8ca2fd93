"""Why this plan, in plain sentences, most important first."""

from __future__ import annotations

from dataclasses import dataclass

from bsprof.fit.knee import KNEE_SHARE, throughput_shape
from bsprof.fit.samples import TIE_SHARE
from bsprof.fit.worlds import probability
from bsprof.recommend.candidates import Candidate, Splitting
from bsprof.recommend.choose import MEMORY_SLOWDOWN, Choice
from bsprof.recommend.wording import (
    OUTCOMES,
    PREDICTED_OUTCOMES,
    listing,
    pieces,
    plural,
    slower_or_faster,
    with_interval,
)
from bsprof.records import (
    Mode,
    Objective,
    Origin,
    Plan,
    Point,
    Profile,
    Quantity,
    Regime,
    Saturation,
    Target,
)
from bsprof.units import format_bytes, format_count, format_seconds, format_share

_RUNNERS_UP = 3
_BINDS = {
    Regime.COMPUTE: "arithmetic limits it",
    Regime.BANDWIDTH: "memory traffic limits it",
    Regime.LAUNCH: "the cost of starting operators limits it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """All that the answer stands on."""

    profile: Profile
    target: Target
    splitting: Splitting
    choice: Choice
    plan: Plan
    limit_bytes: int

    @property
    def infers(self) -> bool:
        """Whether the workload only runs forward."""
        return self.profile.workload.mode is Mode.INFER

    @property
    def is_predicted(self) -> bool:
        """Whether the numbers are predicted; else they are taken as measured."""
        return self.profile.origin is Origin.PREDICTED

    @property
    def found(self) -> str:
        """How the numbers of a size came about, as a participle."""
        return "predicted" if self.is_predicted else "measured"

    @property
    def finds(self) -> str:
        """The same as a verb: what a sweep of the profile's kind does with a size."""
        return "predicts" if self.is_predicted else "measures"

    @property
    def step(self) -> str:
        """What one piece is run in."""
        return "forward pass" if self.infers else "micro-step"

    @property
    def whole(self) -> str:
        """What all pieces together are."""
        return "batch" if self.infers else "update"


def reasons(ground: Ground) -> tuple[str, ...]:
    """The sentences; each is about numbers of the profile and says their unit."""
    sentences = (
        f"{what_to_run(ground)}, {_takes(ground)}.",
        _why(ground),
        _throughput(ground),
        memory_sentence(ground),
        _next_larger(ground),
        _runners_up(ground),
        _trust(ground),
    )
    return tuple(sentence for sentence in sentences if sentence)


def reason_against(ground: Ground, other: Candidate, excess: Quantity) -> str:
    """Why another candidate was not chosen, one sentence."""
    chosen = ground.choice.chosen
    if other in ground.choice.too_large:
        return (
            f"Needs up to {format_bytes(other.ceiling_bytes)}, and the headroom leaves "
            f"{format_bytes(ground.limit_bytes)}."
        )
    found = slower_or_faster(excess)
    found = f"{found[0].upper()}{found[1:]}"
    if other.interpolated and excess.high < -TIE_SHARE:
        return f"{found}, but not {ground.found} itself."
    if other.interpolated and excess.value <= TIE_SHARE:
        return f"Not {ground.found} itself, and not clearly faster than a size that was."
    if excess.value > 0:
        return f"{found}."
    if ground.target.objective is Objective.MEMORY:
        return f"{found}, but needs more memory."
    if other.shapes > chosen.shapes and ground.splitting.prefer_one_shape:
        return f"{found}, but needs a second piece size, which costs extra to prepare."
    if excess.low >= -TIE_SHARE:
        within = format_share(TIE_SHARE)
        return f"As fast to within {within}, and the smaller micro-batch wins ties."
    return f"{found}: too uncertain to prefer the larger micro-batch."


def what_to_run(ground: Ground) -> str:
    """The pieces and what they add up to; a sentence without its end."""
    plan, target = ground.plan, ground.target
    if target.world_size == 1:
        split = pieces(plan.pieces[0].runs, ground.step)
    else:
        split = listing(
            [
                f"{pieces(kind.runs, ground.step)} on {plural(kind.ranks, 'rank')}"
                for kind in plan.pieces
            ]
        )
    deviation = plan.effective_batch_size - target.target_batch
    if deviation:
        total = (
            f"{plan.effective_batch_size:,} samples per {ground.whole}, "
            f"{abs(deviation):,} ({format_share(abs(deviation) / target.target_batch)}) "
            f"{'more' if deviation > 0 else 'fewer'} than asked"
        )
    else:
        total = f"exactly {plural(plan.effective_batch_size, 'sample')} per {ground.whole}"
    return f"Run {split}: {total}"


def _takes(ground: Ground) -> str:
    plan = ground.plan
    assert plan.step_time_s is not None
    assert plan.samples_per_s is not None
    takes = "predicted to take" if ground.is_predicted else "in"
    return (
        f"{takes} {with_interval(plan.step_time_s, format_seconds)}, "
        f"{with_interval(plan.samples_per_s, format_count)} samples per second"
    )


def _why(ground: Ground) -> str:
    choice, size = ground.choice, ground.plan.micro_batch_size
    fastest = choice.fastest
    assert fastest is not None, "times are known"
    measured = [c for c in choice.fitting if not c.interpolated]
    of_sizes = f"Of {plural(len(measured), f'{ground.found} size')} that fit"
    if len(choice.fitting) == 1:
        return f"{size} is the only size that answers the question within the memory limit."
    if ground.target.objective is Objective.MEMORY and choice.chosen is fastest:
        return (
            f"{size} is the fastest, and no smaller size takes at most "
            f"{format_share(MEMORY_SLOWDOWN)} longer."
        )
    if ground.target.objective is Objective.MEMORY:
        return (
            f"{size} needs the least memory among the sizes that take at most "
            f"{format_share(MEMORY_SLOWDOWN)} longer than the fastest, {fastest.micro_batch_size}."
        )
    if choice.chosen.interpolated:
        return (
            f"{size} lies between {ground.found} sizes, splits the target evenly, and is expected "
            f"to beat every {ground.found} size that fits by more than {format_share(TIE_SHARE)}."
        )
    if choice.chosen is fastest:
        takes = "is predicted to take" if ground.is_predicted else "takes"
        return f"{of_sizes}, {size} {takes} the least time per {ground.whole}."
    excess = ground.splitting.excess(choice.chosen, fastest)
    if size < fastest.micro_batch_size and excess.high <= TIE_SHARE:
        return (
            f"{of_sizes}, {fastest.micro_batch_size} is the fastest, but {size} is at most "
            f"{format_share(max(excess.high, 0.0))} slower per {ground.whole}: a tie, and the "
            "smaller micro-batch wins ties."
        )
    return f"{of_sizes}, {size} is the best: {_against_fastest(ground, fastest, excess)}."


def _against_fastest(ground: Ground, fastest: Candidate, excess: Quantity) -> str:
    """Why the fastest by expectation lost, where it is not an ordinary tie."""
    chosen = ground.choice.chosen
    name = str(fastest.micro_batch_size)
    if fastest.shapes > chosen.shapes:
        return f"{name} ties with it, but has pieces of a second size, which costs extra to prepare"
    return (
        f"it is within {format_share(max(excess.value, 0.0))} of the fastest, {name}, and would "
        "be the answer with more memory as well"
    )


def _throughput(ground: Ground) -> str:
    size = ground.plan.micro_batch_size
    shape = throughput_shape(tuple(ground.splitting.curve.points.values()))
    parts = []
    share = format_share(KNEE_SHARE)
    if shape.saturation is Saturation.FLAT:
        noise = "" if ground.is_predicted else ", within noise"
        parts.append(f"throughput is the same at all {ground.found} sizes{noise}")
    elif shape.saturation is Saturation.FALLING:
        parts.append("throughput is best at the smallest sizes and falls from there")
    elif shape.saturation is Saturation.RISING:
        parts.append(
            f"throughput still rises at the largest {ground.found} size, so there is no knee yet"
        )
    elif shape.knee is not None:
        where = "at or above" if size >= shape.knee.value else "below"
        parts.append(
            f"{size} is {where} the knee: {share} of the full throughput is reached at about "
            f"{with_interval(shape.knee, format_count)} samples"
        )
    regime, point = ground.plan.regime, ground.profile.point(size)
    if regime in _BINDS:
        parts.append(f"at {size} {_BINDS[regime]}{_how_much(ground, point)}")
    if not parts:
        return ""
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _how_much(ground: Ground, point: Point | None) -> str:
    """What of the peak is reached; where the host binds, how much it needs."""
    if point is None:
        return ""
    known = point.prediction
    if point.regime is Regime.LAUNCH and known is not None and known.host_s is not None:
        device_s = sum(known.seconds_by_class.values())
        if known.host_s > device_s:
            return (
                f" (the host needs {format_seconds(known.host_s)} to start what the device runs in "
                f"{format_seconds(device_s)})"
            )
    if point.mfu is None:
        return ""
    peaks = ground.profile.peaks
    whose = "device's" if peaks is None or peaks.are_measured else "data sheet's"
    return f" ({format_share(point.mfu.value)} of the {whose} peak FLOP/s)"


def memory_sentence(ground: Ground) -> str:
    """The plan's peak, and what stays free; empty where it is not known."""
    used, free = ground.plan.device_used_bytes, ground.plan.headroom_bytes
    usable = ground.profile.device.usable_bytes
    if used is None or free is None:
        return ""
    asked = usable - ground.limit_bytes
    return (
        f"Its peak is {with_interval(used, format_bytes)} of {format_bytes(usable)} usable: "
        f"{format_bytes(free)} ({format_share(free / usable)}) stays free, "
        f"{format_bytes(asked)} were asked for."
    )


def _next_larger(ground: Ground) -> str:
    size = ground.plan.micro_batch_size
    larger = [p for p in ground.profile.points if p.micro_batch_size > size]
    share = ground.splitting.largest_share
    if share is not None and size == share:
        per_rank = " of a rank" if ground.target.world_size > 1 else ""
        return f"No larger micro-batch is possible: {size} is the whole {ground.whole}{per_rank}."
    if not larger:
        most = ground.profile.max_micro_batch_size
        known = f"; the largest that fits is about {format_count(most.value)}" if most else ""
        return f"No larger size was {ground.found}{known}."
    point = min(larger, key=lambda p: p.micro_batch_size)
    name = f"The next larger size {ground.found}, {point.micro_batch_size},"
    if point.micro_batch_size not in ground.splitting.curve.points:
        outcomes = PREDICTED_OUTCOMES if ground.is_predicted else OUTCOMES
        return f"{name} {outcomes[point.status]}."
    if share is not None and point.micro_batch_size > share:
        return f"{name} is more than the {plural(share, 'sample')} that a rank has."
    found = [
        c
        for c in (*ground.choice.fitting, *ground.choice.too_large)
        if c.micro_batch_size == point.micro_batch_size
    ]
    if not found:
        return f"{name} cannot be put together to the target."
    gain = slower_or_faster(ground.splitting.excess(found[0], ground.choice.chosen))
    if found[0] in ground.choice.too_large:
        return (
            f"{name} would be {gain}, but needs up to {format_bytes(found[0].ceiling_bytes)} "
            f"where the headroom leaves {format_bytes(ground.limit_bytes)}."
        )
    return f"{name} would be {gain}{_memory_cost(found[0], ground.choice.chosen)}."


def _memory_cost(larger: Candidate, chosen: Candidate) -> str:
    if larger.used_bytes is None or chosen.used_bytes is None:
        return ""
    more = larger.used_bytes.value - chosen.used_bytes.value
    return f" and need {format_bytes(more)} more" if more > 0 else ""


def _runners_up(ground: Ground) -> str:
    chosen = ground.choice.chosen
    others = [c for c in ground.choice.fitting if c is not chosen and not c.interpolated]
    excesses = {c.micro_batch_size: ground.splitting.excess(c, chosen) for c in others}
    nearest = sorted(excesses.items(), key=lambda item: (item[1].value, item[0]))[:_RUNNERS_UP]
    if not nearest:
        return ""
    phrases = [f"{size} is {slower_or_faster(excess)}" for size, excess in nearest]
    return f"What the runner-up sizes cost per {ground.whole}: {listing(phrases)}."


def _trust(ground: Ground) -> str:
    plan, profile = ground.plan, ground.profile
    if plan.interpolated:
        state = (
            f"{plan.micro_batch_size} was not {ground.found} itself, but lies between two sizes "
            "that were"
        )
    elif ground.is_predicted:
        state = "these times are predicted, and nothing was run"
    elif profile.origin is not Origin.MEASURED:
        state = f"these numbers are {profile.origin}, not measured on this device"
    elif plan.confirmed:
        state = f"{plan.micro_batch_size} was run again in a fresh process, and fitted"
    else:
        state = f"{plan.micro_batch_size} was measured, but not run again in a fresh process"
    assert plan.step_time_s is not None
    time = plan.step_time_s
    width = max(time.high - time.value, time.value - time.low) / time.value
    known = f"the time is known to within {format_share(width)} (90 % interval)"
    return f"How sure: {state}; {known}.{_sureness(ground)}"


def _sureness(ground: Ground) -> str:
    """How likely no size that fits is clearly faster; empty where worlds do not say it."""
    choice, curve = ground.choice, ground.splitting.curve
    others = [c for c in choice.fitting if c is not choice.chosen and not c.interpolated]
    if not curve.worlds or not others or ground.target.objective is Objective.MEMORY:
        return ""
    chosen = choice.chosen
    mine = [s / chosen.effective_batch_size for s in curve.outcomes(chosen.cost)]
    fastest = [
        min(seconds)
        for seconds in zip(
            *([s / c.effective_batch_size for s in curve.outcomes(c.cost)] for c in others),
            strict=True,
        )
    ]
    limit = 1 + TIE_SHARE
    sure = probability([a <= limit * b for a, b in zip(mine, fastest, strict=True)])
    return (
        f" Sizes err alike, so between them it is surer: with probability {format_share(sure)} no "
        f"{ground.found} size that fits is more than {format_share(TIE_SHARE)} faster."
    )
