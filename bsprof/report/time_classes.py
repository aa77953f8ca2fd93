"""Where the time of a predicted micro-step goes: classes of work in groups; pure Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bsprof.accounting.work import WorkClass
from bsprof.records import Point, Profile
from bsprof.report.tables import Column, Emphasis, Row, Table
from bsprof.report.words import best_point, quantity_text, regime_text
from bsprof.units import format_bytes, format_rate, format_seconds, format_share

_GROUPS: Mapping[str, tuple[str, tuple[WorkClass, ...]]] = {
    "matrix products": (
        "series1",
        (WorkClass.MATMUL, WorkClass.BATCHED_MATMUL, WorkClass.RNN, WorkClass.FFT),
    ),
    "convolutions": (
        "series2",
        (
            WorkClass.CONVOLUTION_FORWARD,
            WorkClass.CONVOLUTION_DATA,
            WorkClass.CONVOLUTION_WEIGHT,
        ),
    ),
    "attention": ("series3", (WorkClass.ATTENTION_FORWARD, WorkClass.ATTENTION_BACKWARD)),
    "norms and softmax": (
        "series4",
        (WorkClass.NORMALISATION, WorkClass.NORMALISATION_BACKWARD, WorkClass.SOFTMAX),
    ),
    "elementwise": (
        "series5",
        (
            WorkClass.ELEMENTWISE,
            WorkClass.FUSED,
            WorkClass.RANDOM,
            WorkClass.COPY,
            WorkClass.LAYOUT,
        ),
    ),
}
OTHER = "other work"
WAITING = "waiting"
GROUPS: Mapping[str, str] = {
    **{name: role for name, (role, _) in _GROUPS.items()},
    OTHER: "series6",
    WAITING: "cached",
}
"""Name and colour role of every group, in the order in which they are stacked."""

_MEANINGS = {
    "matrix products": "Matrix products, recurrent layers and Fourier transforms.",
    "norms and softmax": "Normalisation, and softmax also of the loss.",
    "elementwise": "Elementwise operators, fused ones, dropout's random numbers, copies and casts.",
    OTHER: "Embeddings, losses, reductions, pooling, indexing and the rest.",
    WAITING: "The device waits: for the host to start operators, or for other ranks.",
}
_LEAST_WAITING = 0.005  # of the micro-step; below, rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """A part of a micro-step: what it is spent on, its colour role and its seconds."""

    name: str
    role: str
    seconds: float


def group_of(work_class: str) -> str:
    """The group of a class of work; `OTHER` for one that is not known."""
    for name, (_, classes) in _GROUPS.items():
        if work_class in classes:
            return name
    return OTHER


def seconds_by_group(point: Point) -> Mapping[str, float]:
    """Seconds of the device in a micro-step, by group; empty where they were not predicted."""
    known = {} if point.prediction is None else point.prediction.seconds_by_class
    found: dict[str, float] = {}
    for work_class, seconds in known.items():
        name = group_of(work_class)
        found[name] = found.get(name, 0.0) + seconds
    return {name: found[name] for name in GROUPS if name in found}


def device_seconds(point: Point) -> float:
    """Seconds that the device works in a micro-step; 0 where they were not predicted."""
    return sum(seconds_by_group(point).values())


def portions(point: Point) -> tuple[Portion, ...]:
    """What a micro-step is spent on: they add up to it, in the order of `GROUPS`."""
    found = dict(seconds_by_group(point))
    if not found:
        return ()
    step = 0.0 if point.micro_step_s is None else point.micro_step_s.value
    waiting = step - sum(found.values())
    if waiting > _LEAST_WAITING * step:
        found[WAITING] = waiting
    return tuple(Portion(name=n, role=GROUPS[n], seconds=s) for n, s in found.items() if s > 0)


def class_points(profile: Profile) -> tuple[Point, ...]:
    """The points of which it is known what a micro-step is spent on."""
    return tuple(p for p in profile.points if portions(p))


def class_table(profile: Profile, chosen: int | None = None) -> Table | None:
    """Every size with its seconds on device and host, and shares by group; None without them."""
    points = class_points(profile)
    if not points:
        return None
    held = {portion.name for point in points for portion in portions(point)}
    shown = [name for name in GROUPS if name in held]
    return Table(
        caption="Where the time of a micro-step goes",
        columns=(
            Column(key="micro_batch_size", title="micro-batch", meaning="Samples of a micro-step."),
            Column(key="micro_step_s", title="micro-step", meaning="One forward and backward."),
            Column(key="device_s", title="device", meaning="Seconds that the device works."),
            Column(
                key="host_s",
                title="host",
                meaning="Seconds that the host needs to start the operators.",
            ),
            Column(
                key="regime", title="regime", meaning="What binds most of the time.", numeric=False
            ),
            *(
                Column(
                    key=n.replace(" ", "_"), title=n, meaning=_MEANINGS.get(n, "Of the micro-step.")
                )
                for n in shown
            ),
        ),
        rows=tuple(_row(point, shown, chosen) for point in points),
    )


def _row(point: Point, shown: list[str], chosen: int | None) -> Row:
    parts = {portion.name: portion.seconds for portion in portions(point)}
    whole = sum(parts.values())
    host = None if point.prediction is None else point.prediction.host_s
    return Row(
        cells=(
            f"{point.micro_batch_size:,}",
            quantity_text(point.micro_step_s, format_seconds),
            format_seconds(device_seconds(point)),
            "" if host is None else format_seconds(host),
            regime_text(point),
            *(format_share(parts[n] / whole) if n in parts else "" for n in shown),
        ),
        emphasis=Emphasis.CHOSEN if point.micro_batch_size == chosen else Emphasis.NONE,
    )


def heaviest_point(profile: Profile, chosen: int | None) -> Point | None:
    """The point whose operators are shown: the chosen one, else the best, else the largest."""
    points = [p for p in profile.points if p.prediction and p.prediction.heaviest]
    best = best_point(profile)
    return max(
        points,
        key=lambda p: (p.micro_batch_size == chosen, p == best, p.is_ok, p.micro_batch_size),
        default=None,
    )


def heaviest_table(profile: Profile, chosen: int | None = None) -> Table | None:
    """The operators that take most of the device's time at one size; None where not known."""
    point = heaviest_point(profile, chosen)
    if point is None or point.prediction is None:
        return None
    whole = device_seconds(point)
    rows = tuple(
        Row(
            cells=(
                operator.name,
                operator.shape,
                f"{operator.count:,}",
                format_seconds(operator.seconds),
                format_share(operator.seconds / whole) if whole else "",
                str(operator.regime),
                format_rate(operator.flops / operator.seconds, "FLOP/s")
                if operator.flops and operator.seconds
                else "",
                format_bytes(operator.bytes),
            )
        )
        for operator in point.prediction.heaviest
    )
    return Table(
        caption=f"Heaviest operators, micro-batch {point.micro_batch_size:,}",
        columns=(
            Column(key="operator", title="operator", meaning="As PyTorch calls it.", numeric=False),
            Column(
                key="shape", title="shape", meaning="Of one of them, and its type.", numeric=False
            ),
            Column(key="count", title="count", meaning="How many in a micro-step."),
            Column(key="seconds", title="time", meaning="Of the device, all of them."),
            Column(key="share", title="share", meaning="Of the device's time in a micro-step."),
            Column(key="regime", title="bound by", meaning="What binds them.", numeric=False),
            Column(key="rate", title="rate", meaning="FLOPs over time."),
            Column(key="bytes", title="moved", meaning="Read and written by all of them."),
        ),
        rows=rows,
    )
