"""Short texts about quantities, plans, workloads and devices; pure Python, ASCII, no layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from bsprof.recommend.wording import plural, rules_text
from bsprof.records import (
    DeviceSnapshot,
    Mode,
    Note,
    Origin,
    Phase,
    Plan,
    Point,
    PointStatus,
    Profile,
    Quantity,
    RankPieces,
    Recommendation,
    Regime,
    Scalar,
    WorkloadSpec,
)
from bsprof.units import format_bytes, format_count, format_rate, format_seconds, format_share

PHASE_NAMES: Mapping[Phase, str] = {
    Phase.FORWARD_BACKWARD: "forward + backward",
    Phase.ACCUMULATION: "accumulation",
    Phase.OPTIMIZER_STEP: "optimizer step",
    Phase.FORWARD: "forward",
}
STATUS_NAMES: Mapping[PointStatus, str] = {
    PointStatus.OK: "ok",
    PointStatus.OOM: "out of memory",
    PointStatus.KILLED: "killed",
    PointStatus.TIMEOUT: "timed out",
    PointStatus.CRASHED: "crashed",
    PointStatus.FAILED: "failed",
    PointStatus.NOT_MEMORY_LIMIT: "limit other than memory",
    PointStatus.SKIPPED: "skipped",
}

_FIT_COUNTS = {
    "fits": "fit",
    "fits only after a flush": "only after a flush",
    "does not fit": "too large",
}
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|[KMGTP]iB\b|B\b|[mu]?s\b)")
_SHOWN_SPREAD = 0.0005  # half widths below 0.05 % would be shown as 0.0 %


def unbroken(text: str) -> str:
    """Text that does not break between a number and its unit."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)


def spread_text(quantity: Quantity) -> str:
    """Half width of the 90 % interval over the value, `+-1.2 %`; empty for an exact number."""
    if quantity.value == 0:
        return ""
    half = max(quantity.high - quantity.value, quantity.value - quantity.low)
    share = half / abs(quantity.value)
    return f"+-{format_share(share)}" if share >= _SHOWN_SPREAD else ""


def quantity_text(quantity: Quantity | None, write: Callable[[float], str]) -> str:
    """A value with its spread, `12.3 ms +-1.2 %`; empty for None."""
    if quantity is None:
        return ""
    return f"{write(quantity.value)} {spread_text(quantity)}".rstrip()


def joules(value: float) -> str:
    """An energy for people: `850 J`, `12,300 J`."""
    return f"{format_count(value)} J"


def size_range_text(quantity: Quantity) -> str:
    """A micro-batch size with its interval, `71 (68 to 74)`, or `71` when it is exact."""
    value, low, high = (max(1, round(v)) for v in (quantity.value, quantity.low, quantity.high))
    return f"{value:,}" if low == high else f"{value:,} ({low:,} to {high:,})"


def status_text(point: Point) -> str:
    """How a point ended, in words; says `at the edge` when it fits only after a cache flush.

    Of a predicted point: whether it fits.
    """
    if point.status is PointStatus.OK:
        if point.prediction is not None:
            return "fits only after a flush" if point.alloc_retries else "fits"
        if point.alloc_retries:
            return "ok, at the edge"
        if point.confirmed:
            return "ok, confirmed"
        return "ok"
    if point.prediction is not None and point.status is PointStatus.OOM:
        return "does not fit"
    return STATUS_NAMES[point.status]


def failure_text(point: Point) -> str:
    """Why a point has no numbers or is not recommended: one sentence, with place and size."""
    if point.failure is None:
        return "fits only after a cache flush; never recommended" if point.alloc_retries else ""
    failure = point.failure
    parts = [failure.reason]
    if point.prediction is not None:
        return failure.reason
    if failure.requested_bytes:
        parts.append(f"asked for {format_bytes(failure.requested_bytes)}")
    if failure.location:
        parts.append(f"at {failure.location}")
    if failure.phase and failure.phase not in failure.reason:
        parts.append(f"during {failure.phase.replace('_', ' ')}")
    return ", ".join(parts)


def pieces_text(pieces: Sequence[RankPieces]) -> str:
    """The exact pieces, ranks with equal pieces together: `ranks 0 to 2: 5 x 32 + 1 x 16`."""
    lines, first = [], 0
    total = sum(kind.ranks for kind in pieces)
    for kind in pieces:
        last = first + kind.ranks - 1
        where = f"rank {first}" if first == last else f"ranks {first} to {last}"
        prefix = "" if total == 1 else f"{where}: "
        lines.append(prefix + " + ".join(f"{run.count} x {run.size:,}" for run in kind.runs))
        first = last + 1
    return "; ".join(lines)


def has_unequal_pieces(plan: Plan) -> bool:
    """Whether some piece of the plan differs from the others."""
    return len({size for kind in plan.pieces for size in kind.sizes}) > 1


def plan_text(recommendation: Recommendation) -> str:
    """The answer in one line: `micro-batch 32 x 64 accumulation steps`, with ranks if several."""
    plan, ranks = recommendation.plan, recommendation.target.world_size
    text = f"micro-batch {plan.micro_batch_size:,} x "
    text += plural(plan.accumulation_steps, "accumulation step")
    return text + (f" x {ranks:,} ranks" if ranks > 1 else "")


def workload_text(spec: WorkloadSpec) -> str:
    """What is run, one line, leaving out what is at its default."""
    parts = [spec.model]
    parts += [f"{key} {value}" for key, value in spec.model_options.items()]
    if spec.seq_len is not None:
        parts.append(f"sequence {spec.seq_len:,}")
    if spec.image_size is not None:
        parts.append(f"image {spec.image_size}")
    parts.append(str(spec.precision))
    parts.append("inference" if spec.mode is Mode.INFER else spec.optimizer)
    if spec.clip_norm is not None:
        parts.append(f"clip norm {spec.clip_norm:g}")
    if spec.activation_checkpointing != "none":
        parts.append(f"checkpointing {spec.activation_checkpointing}")
    if spec.lora_rank is not None:
        parts.append(f"LoRA rank {spec.lora_rank}")
    if spec.freeze:
        parts.append(f"frozen {' '.join(spec.freeze)}")
    if spec.ema:
        parts.append("moving average of the weights")
    if spec.attention is not None:
        parts.append(f"{spec.attention} attention")
    if spec.compile:
        parts.append("compiled")
    if spec.channels_last:
        parts.append("channels last")
    return ", ".join(parts)


def device_text(device: DeviceSnapshot) -> str:
    """Where it ran, one line: the name, and the threads of a CPU."""
    name = device.name or device.kind
    return f"{name}, {plural(device.threads, 'thread')}" if device.threads else name


def origin_text(profile: Profile) -> str:
    """`measured`, `predicted`, ...; says so when the sweep did not end by itself."""
    text = str(profile.origin)
    complete = profile.complete or profile.origin is not Origin.MEASURED
    return text if complete else f"{text}, not complete"


def provenance_text(profile: Profile) -> str:
    """Where predicted numbers come from, a sentence without a full stop; empty for measured ones.

    `predicted for NVIDIA GeForce RTX 4090 with the rules of torch 2.13 and cuDNN 9; nothing was
    run on it`.
    """
    if profile.origin is not Origin.PREDICTED:
        return ""
    where = profile.device.name or profile.device.kind
    rules = rules_text(profile)
    by = f" with the rules of {rules}" if rules else ""
    return f"predicted for {where}{by}; nothing was run on it"


def regime_text(point: Point) -> str:
    """What binds at a point; empty where that is not known."""
    return "" if point.regime is Regime.UNKNOWN else str(point.regime)


def counts_text(profile: Profile) -> str:
    """How the points ended: `9 ok, 2 out of memory`."""
    counts: dict[str, int] = {}
    for point in profile.points:
        text = "at the edge" if point.alloc_retries else STATUS_NAMES[point.status]
        if point.prediction is not None:
            text = _FIT_COUNTS.get(status_text(point), text)
        counts[text] = counts.get(text, 0) + 1
    return ", ".join(f"{n} {text}" for text, n in counts.items()) or "none"


def note_text(note: Note) -> str:
    """A note as one line: the size it is about, the sentence, and what can be done."""
    about = "" if note.micro_batch_size is None else f"micro-batch {note.micro_batch_size:,}: "
    ending = "" if note.message.endswith((".", "!", "?")) or not note.hint else ";"
    return f"{about}{note.message}{ending} {note.hint}".rstrip()


def scalar_text(value: Scalar) -> str:
    """A setting's value for people; `-` where it is unknown or not set."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def best_point(profile: Profile) -> Point | None:
    """The size the sweep confirmed, else the one with the highest samples per second.

    Of a predicted profile: the size to choose without a target, as a sweep chooses which size it
    confirms (the fastest in micro-steps that leaves the usual headroom, ties to the smaller).
    """
    if profile.origin is Origin.PREDICTED:
        from bsprof.measure.choose import best_size  # not needed to recommend, and not light

        size = best_size(profile.ok_points(), profile.device.usable_bytes)
        return None if size is None else profile.point(size)
    timed = [p for p in profile.ok_points() if p.samples_per_s is not None]
    confirmed = [p for p in timed if p.confirmed]
    return max(
        confirmed or timed,
        key=lambda p: p.samples_per_s.value if p.samples_per_s else 0.0,
        default=None,
    )


def largest_fitting(profile: Profile) -> Point | None:
    """The largest size that fits without a cache flush, of a profile without times; else None."""
    fitting = profile.ok_points()
    if profile.origin is not Origin.PREDICTED or any(p.micro_step_s for p in fitting):
        return None
    return max(fitting, key=lambda p: p.micro_batch_size, default=None)


def environment_rows(profile: Profile) -> tuple[tuple[str, str], ...]:
    """Label and text of everything around the measurement: software, device, peaks, settings."""
    environment, device, peaks = profile.environment, profile.device, profile.peaks
    rows = [
        ("bsprof", environment.bsprof),
        ("torch", environment.torch),
        ("Python", environment.python),
        ("platform", environment.platform),
        *((name, scalar_text(value)) for name, value in sorted(environment.libraries.items())),
        ("device", device_text(device)),
        ("device kind", f"{device.kind}:{device.index}"),
        ("capacity", format_bytes(device.capacity_bytes)),
        ("usable", f"{format_bytes(device.usable_bytes)}, by {device.limit_source}"),
    ]
    if device.other_bytes is not None:
        rows.append(("used by others", format_bytes(device.other_bytes)))
    if device.compute_units is not None:
        rows.append(("compute units", f"{device.compute_units:,}"))
    rows += [(name, scalar_text(value)) for name, value in sorted(device.details.items())]
    if peaks is not None:
        rows += [
            (f"peak {kind}", format_rate(rate, "FLOP/s"))
            for kind, rate in sorted(peaks.flops_per_s.items())
        ]
        rows.append(("peak bandwidth", format_rate(peaks.bandwidth_bytes_per_s, "B/s")))
        rows.append(("launch of an empty operator", format_seconds(peaks.launch_s)))
        rows.append(("peaks from", peaks.source))
    rows += [(name, scalar_text(value)) for name, value in sorted(environment.settings.items())]
    if profile.facts is not None and profile.facts.uncounted_operators:
        rows.append(("operators not counted", ", ".join(profile.facts.uncounted_operators)))
    return tuple(rows)
