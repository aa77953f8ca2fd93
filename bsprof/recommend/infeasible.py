"""Why nothing answers the question, and the cheapest change that would make it fit."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from bsprof.errors import BsprofError, MeasurementError, NoFeasibleBatch
from bsprof.recommend.candidates import Candidate
from bsprof.recommend.commands import sweep_command
from bsprof.recommend.curve import Curve
from bsprof.recommend.target import headroom_of
from bsprof.recommend.wording import with_interval
from bsprof.records import (
    Category,
    Change,
    Mode,
    Origin,
    Point,
    PointStatus,
    Precision,
    Profile,
    Target,
)
from bsprof.units import format_bytes

# Checkpointing every block keeps the blocks' inputs instead of all that lies inside them.
# Heuristic: a transformer block keeps about 34 values per token and channel (arXiv 2205.05198,
# section 4), its input is one; a quarter is a cautious remainder for other models.
CHECKPOINTING_KEEPS = 0.25
_MOST_CHANGES = 3  # named in one sentence
_STATES_PER_PARAMETER = {"adam": 2, "adamw": 2, "nadam": 2, "radam": 2, "adamax": 2, "rmsprop": 1}


def nothing_measured(profile: Profile) -> BsprofError:
    """The error for a profile without one usable point."""
    too_big = profile.smallest_too_big()
    found = _found(profile)
    flushed = [p for p in profile.points if p.status is PointStatus.OK and p.alloc_retries]
    if too_big is None and flushed:
        too_big = min(flushed, key=lambda p: p.micro_batch_size)
    if too_big is None:
        try:
            profile.raise_for_status()
        except MeasurementError as error:
            return error
        return MeasurementError(
            f"no point of {profile.workload.model} can be used",
            found="every point lacks a time, ran no step, or ran another size than it says"
            if found == "measured"
            else "no point says what memory it needs",
            next_step=f"{_find(profile)} again: {sweep_command(profile)}",
        )
    return NoFeasibleBatch(
        f"no micro-batch size of {profile.workload.model} fits on {profile.device.name}",
        found=f"the smallest size {'that failed' if found == 'measured' else found}, "
        f"{too_big.micro_batch_size}, {_outcome(too_big, found)}; "
        f"usable memory is {format_bytes(profile.device.usable_bytes)}",
        next_step=cheapest_change(profile, too_big, missing_bytes=_missing(profile, too_big)),
    )


def nothing_fits(
    profile: Profile, target: Target, curve: Curve, smallest: Candidate
) -> NoFeasibleBatch:
    """The error when even the smallest candidate would not leave the headroom."""
    usable = profile.device.usable_bytes
    allowed = usable - headroom_of(target, usable)
    size, needed = smallest.micro_batch_size, smallest.ceiling_bytes
    spare = usable - needed
    if spare >= 0:
        step = (
            f"leave less free: with --headroom {math.floor(100 * spare / usable)}% size {size} fits"
        )
    else:
        nearest = curve.points[min(s for s in curve.sizes if s >= size)]
        step = cheapest_change(
            profile, nearest, missing_bytes=needed - allowed, allowed_bytes=allowed
        )
    return NoFeasibleBatch(
        f"no micro-batch size of {profile.workload.model} leaves a headroom of "
        f"{format_bytes(usable - allowed)} on {profile.device.name}",
        found=f"the smallest size that could be used, {size}, needs up to {format_bytes(needed)}; "
        f"{format_bytes(allowed)} of {format_bytes(usable)} may be used",
        next_step=step,
    )


def nothing_splits(profile: Profile, target: Target, curve: Curve, single: bool) -> NoFeasibleBatch:
    """The error when no usable size can be put together to the target."""
    share = -(-target.target_batch // target.world_size)
    sizes = ", ".join(map(str, curve.sizes))
    if share < curve.sizes[0]:
        refused = sorted(s for s in curve.refused if s <= share)
        failed = f"; {', '.join(map(str, refused))} did not work" if refused else ""
        return NoFeasibleBatch(
            f"no {_found(profile)} micro-batch size is small enough for {_of_rank(target, share)}",
            found=f"the usable sizes are {sizes}{failed}",
            next_step=f"{_find(profile)} smaller sizes: "
            + sweep_command(profile, "--micro-batch-sizes", str(share))
            if not refused
            else f"use a target of at least {curve.sizes[0] * target.world_size}",
        )
    why = "without a piece of one sample, which batch normalisation cannot use, " if single else ""
    near = curve.sizes[0] * target.world_size
    return NoFeasibleBatch(
        f"the usable sizes cannot be put together {why}to {_of_rank(target, share)}",
        found=f"the usable sizes are {sizes}",
        next_step=f"use a target that is a multiple of {near} "
        f"(nearest: {max(1, round(target.target_batch / near)) * near}), or allow a near miss with "
        "--tolerance",
    )


def cheapest_change(
    profile: Profile,
    point: Point,
    *,
    missing_bytes: float | None,
    allowed_bytes: float | None = None,
) -> str:
    """The change that costs least among those that may suffice, with its effect.

    The effect is estimated, or predicted where the profile holds predictions of changes.

    Args:
        point: The smallest size that did not fit, or whose peak is too high.
        missing_bytes: Bytes that have to go; None when unknown.
        allowed_bytes: What the upper end of the peak may be; None is all that is usable.
    """
    allowed = profile.device.usable_bytes if allowed_bytes is None else allowed_bytes
    smallest = 2 if _has_batch_norm(profile) else 1
    if point.micro_batch_size > smallest:
        return (
            f"{_find(profile)} smaller sizes, which cost nothing but time (less activation memory "
            f"by a factor of up to {point.micro_batch_size // smallest}): "
            + sweep_command(profile, "--micro-batch-sizes", str(smallest))
        )
    if profile.device.limit_source == "option":
        more = "" if missing_bytes is None else f" by at least {format_bytes(missing_bytes)}"
        return f"raise --memory-limit{more}"
    if predicted := predicted_changes(profile, point.micro_batch_size, allowed):
        return predicted
    changes = list(_changes(profile, point))
    enough = [c for c in changes if missing_bytes is not None and c.saves_bytes >= missing_bytes]
    if enough:
        return enough[0].text()
    if changes:
        return max(changes, key=lambda c: c.saves_bytes).text()
    return "use a device with more memory, or a smaller model or input"


def predicted_changes(profile: Profile, micro_batch_size: int, allowed_bytes: float) -> str:
    """The predicted changes that make a size fit, those that cost least first; else the best one.

    Empty where the profile holds no prediction of a change at that size.
    """
    held = () if profile.prediction is None else profile.prediction.changes
    changes = [c for c in held if c.micro_batch_size == micro_batch_size]
    if not changes:
        return ""
    enough = [c for c in changes if c.fits and c.device_used_bytes.high <= allowed_bytes]
    if enough:
        return "; or ".join(map(_predicted, enough[:_MOST_CHANGES]))
    best = min(changes, key=lambda c: c.device_used_bytes.high)
    return f"no predicted change is enough; the largest saving: {_predicted(best)}"


def _predicted(change: Change) -> str:
    options = f" ({shlex.join(change.options)})" if change.options else ""
    saved = max(0.0, change.saved_bytes.value)
    return (
        f"{change.name}{options}: predicted to need "
        f"{with_interval(change.device_used_bytes, format_bytes)}, {format_bytes(saved)} less"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    what: str
    saves_bytes: float
    costs: str

    def text(self) -> str:
        return (
            f"{self.what}: saves about {format_bytes(self.saves_bytes)} (estimated), {self.costs}"
        )


def _changes(profile: Profile, point: Point) -> Iterator[_Change]:
    """Changes that this workload has not made yet, those that cost least first."""
    spec = profile.workload
    by_category = _bytes_by_category(profile, point)
    activations = by_category.get(Category.ACTIVATIONS, 0)
    held = sum(by_category.values()) - activations
    if activations and spec.precision in (Precision.FP32, Precision.FP32_STRICT, Precision.TF32):
        yield _Change(
            what="hold activations in half the bytes (--precision amp-bf16)",
            saves_bytes=activations / 2,
            costs="and is usually faster on devices with bf16 units",
        )
    if activations and spec.mode is Mode.TRAIN and spec.activation_checkpointing == "none":
        yield _Change(
            what="recompute activations (--activation-checkpointing full)",
            saves_bytes=activations * (1 - CHECKPOINTING_KEEPS),
            costs="for about a third more computing",
        )
    state = by_category.get(Category.OPTIMIZER_STATE, 0)
    if state and spec.mode is Mode.TRAIN:
        yield _Change(
            what="use an optimizer without state (--optimizer sgd)",
            saves_bytes=state,
            costs="but trains differently",
        )
    if spec.precision not in (Precision.BF16, Precision.FP16):
        yield _Change(
            what="hold weights, gradients and optimizer state in half the bytes (--precision bf16)",
            saves_bytes=(held + activations) / 2,
            costs="but with less precise updates",
        )


def _bytes_by_category(profile: Profile, point: Point) -> dict[Category, int]:
    """As measured; else weights, gradients and optimizer state from the parameter count."""
    if point.peak_by_category_bytes:
        return dict(point.peak_by_category_bytes)
    facts = profile.facts
    if facts is None or facts.parameter_count == 0:
        return {}
    found = {Category.WEIGHTS: facts.parameter_bytes}
    if profile.workload.mode is Mode.TRAIN:
        gradients = gradient_bytes(profile)
        states = _STATES_PER_PARAMETER.get((facts.optimizer or "").lower(), 0)
        found[Category.GRADIENTS] = gradients
        found[Category.OPTIMIZER_STATE] = states * gradients
    # What was usable and not held by these is what activations had; they needed more.
    rest = profile.device.usable_bytes - sum(found.values())
    if rest > 0:
        found[Category.ACTIVATIONS] = rest
    return found


def gradient_bytes(profile: Profile) -> int:
    """Bytes of all gradients, from the facts of the workload; 0 when unknown."""
    facts = profile.facts
    if facts is None or facts.parameter_count == 0:
        return 0
    return round(facts.parameter_bytes * facts.trainable_parameter_count / facts.parameter_count)


def _has_batch_norm(profile: Profile) -> bool:
    training = profile.workload.mode is Mode.TRAIN
    return training and profile.facts is not None and profile.facts.batch_norm_modules > 0


def _found(profile: Profile) -> str:
    return "predicted" if profile.origin is Origin.PREDICTED else "measured"


def _find(profile: Profile) -> str:
    return "predict" if profile.origin is Origin.PREDICTED else "measure"


def _missing(profile: Profile, point: Point) -> float | None:
    """Bytes that have to go: of a predicted size what it needs beyond the limit."""
    if profile.origin is Origin.PREDICTED and point.device_used_bytes is not None:
        return max(0.0, point.device_used_bytes.high - profile.device.usable_bytes)
    return point.failure.requested_bytes if point.failure else None


def _of_rank(target: Target, share: int) -> str:
    if target.world_size == 1:
        return f"a target of {share} samples"
    return f"the {share} samples that each of {target.world_size} ranks has per update"


def _outcome(point: Point, found: str) -> str:
    if point.status is PointStatus.OK:
        return "fits only after the allocator flushed its cache"
    if found == "predicted":
        if point.device_used_bytes is not None:
            needs = with_interval(point.device_used_bytes, format_bytes)
            return f"is predicted to need {needs}"
        requested = point.failure.requested_bytes if point.failure else None
        at = "" if requested is None else f" at a request of {format_bytes(requested)}"
        return f"is predicted to run out of memory{at}"
    what = (
        "was killed for its memory" if point.status is PointStatus.KILLED else "ran out of memory"
    )
    requested = point.failure.requested_bytes if point.failure else None
    if requested is None:
        return what
    return f"{what} at a request of {format_bytes(requested)}"
