"""Learning rate and what goes with it, where the effective batch changes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bsprof.recommend.advice.scaling import (
    adam_gain,
    least_warmup,
    same_half_life,
    scaled_betas,
    sgd_gain,
)
from bsprof.recommend.advice.situation import Situation
from bsprof.recommend.reasons import Ground
from bsprof.recommend.wording import three_digits
from bsprof.records import Note
from bsprof.units import format_count

ADAM_LIKE = frozenset({"adam", "adamw", "nadam", "radam", "adamax", "adam8bit", "adamw8bit"})
"""Optimizers that divide by a running root mean square of the gradient, lower case."""

_BETA1, _BETA2 = 0.9, 0.999  # torch's defaults
_LARGEST_SHOWN = 8192  # images, in 1706.02677
_CHANGED = 1e-9


def on_learning_rate(ground: Ground, situation: Situation) -> Iterator[Note]:
    """Notes; nothing unless the batch that the learning rate was tuned at is known."""
    batch, current = ground.plan.effective_batch_size, situation.current_batch
    if current is None:
        return
    kappa = batch / current
    if abs(kappa - 1) < _CHANGED:
        yield Note(
            code="learning-rate",
            message=f"None needed: the effective batch stays {batch:,}, so learning rate, betas, "
            "weight decay, warm-up and schedule stay as they are, however it is split.",
        )
        return
    name = optimizer_name(ground)
    if name == "sgd":
        yield _sgd(ground, kappa, current, situation.noise_scale)
        yield Note(
            code="momentum",
            message="The linear rule was shown with momentum kept at 0.9 (1706.02677); leave it.",
        )
    elif name in ADAM_LIKE:
        yield _adam(ground, kappa, current, situation.noise_scale)
        yield _betas(ground, kappa)
        if "w" in name.removesuffix("8bit")[4:]:
            yield _weight_decay(kappa)
    else:
        yield Note(
            code="learning-rate",
            message=f"The effective batch changes from {current:,} to {batch:,}. No rule with "
            f"evidence is known here for {name or 'this optimizer'}: try the learning rate anew.",
        )
    yield _schedule(kappa, current, batch)
    if situation.noise_scale is not None and batch > situation.noise_scale:
        yield Note(
            code="above-noise-scale",
            message=f"The target of {batch:,} is above the noise scale of "
            f"{format_count(situation.noise_scale)} samples: larger batches save few steps there, "
            "and Adam's best learning rate may fall (2405.14578, abstract). A noise scale is a low "
            "indication by order of magnitude: critical batches measured by branching were far "
            "larger (2505.23971), so this is no reason against the target by itself.",
            hint="branch a run from a checkpoint with each batch, over the same tokens",
        )


def optimizer_name(ground: Ground) -> str:
    """The optimizer's name in lower case, as it really ran where that is known."""
    facts = ground.profile.facts
    found = facts.optimizer if facts is not None and facts.optimizer else None
    return (found or ground.profile.workload.optimizer).lower()


def _option(ground: Ground, name: str) -> float | None:
    value = ground.profile.workload.optimizer_options.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _times(ground: Ground, factor: float) -> str:
    """`times 2.83`, and the rate itself where the profile knows the old one."""
    rate = _option(ground, "lr")
    known = "" if rate is None else f" ({rate:.3g} -> {rate * factor:.3g})"
    return f"times {three_digits(factor)}{known}"


def _sgd(ground: Ground, kappa: float, current: int, noise_scale: float | None) -> Note:
    batch = ground.plan.effective_batch_size
    gain = sgd_gain(kappa, current, noise_scale)
    shown = (
        f"shown without loss up to {_LARGEST_SHOWN:,} images with a ramp over 5 epochs (1706.02677)"
        + (f"; {batch:,} is beyond that" if batch > _LARGEST_SHOWN else "")
    )
    if noise_scale is None:
        message = f"SGD: learning rate {_times(ground, gain)}, in proportion to the batch; {shown}."
        if kappa < 1:
            message = (
                f"SGD: learning rate {_times(ground, gain)}, in proportion to the batch. The "
                "evidence is for growing batches (1706.02677)."
            )
    else:
        low, high = sorted((gain, kappa))
        message = (
            f"SGD: learning rate {_times(ground, gain)}, from the noise scale of "
            f"{format_count(noise_scale)} samples (AdaScale's gain, as in adaptdl). Range: "
            f"{three_digits(low)} to {three_digits(high)}, where {three_digits(kappa)} is the "
            f"linear rule, {shown}."
        )
    hint = "warm up to the new rate over the first 5 epochs" if kappa > 1 else ""
    return Note(code="learning-rate", message=message, hint=hint)


def _adam(ground: Ground, kappa: float, current: int, noise_scale: float | None) -> Note:
    root = math.sqrt(kappa)
    gain = adam_gain(kappa, current, noise_scale)
    if noise_scale is None:
        low, high = sorted((1.0, root))
        message = (
            f"Adam: learning rate {_times(ground, gain)}, the square root of the change of batch "
            f"(2205.10287, abstract), with betas kept. Range: {three_digits(low)} to "
            f"{three_digits(high)}. Where beta2 keeps its half-life in tokens, tuned rates moved "
            "far less: 2 times over a change of 512 times (2507.07101), so expect about 1 to 3."
        )
    else:
        low, high = sorted((gain, root))
        message = (
            f"Adam: learning rate {_times(ground, gain)}, from the noise scale of "
            f"{format_count(noise_scale)} samples (square root of AdaScale's gain, as in adaptdl). "
            f"Range: {three_digits(low)} to {three_digits(high)}, the square-root rule."
        )
    beta2 = _BETA2
    return Note(
        code="learning-rate",
        message=message,
        hint=f"warm up over at least {least_warmup(beta2):,} optimizer steps, 2 / (1 - beta2) at "
        f"beta2 {beta2} (second-hand)",
    )


def _betas(ground: Ground, kappa: float) -> Note:
    betas = scaled_betas(_BETA1, _BETA2, kappa)
    eps = _option(ground, "eps") or 1e-8
    held = (
        f" At this change the rule has no value for beta1 (it holds below "
        f"{1 / (1 - _BETA1):.0f} times): 0 is where it ends, not a recommendation."
        if betas.clamped
        else ""
    )
    return Note(
        code="betas",
        message="With the square-root rule 1 - beta grows as the batch: from 0.9, 0.999 to "
        f"{betas.beta1:.4g}, {betas.beta2:.6g}, and eps from {eps:.1g} to "
        f"{eps / math.sqrt(kappa):.2g} (2205.10287; betas and eps second-hand).{held} Another rule "
        "changes beta2 only, to keep its half-life in tokens: "
        f"{same_half_life(_BETA2, kappa):.6g} from 0.999, "
        f"{same_half_life(0.95, kappa):.4g} from 0.95 (2507.07101). Take one, not both.",
    )


def _weight_decay(kappa: float) -> Note:
    return Note(
        code="weight-decay",
        message="AdamW: with the data kept, weight decay times "
        f"{three_digits(math.sqrt(kappa))} beside the square-root rule keeps B / (learning rate x "
        "weight decay x data), which 2505.13738 found to stay constant at the optimum (abstract, "
        "language models).",
    )


def _schedule(kappa: float, current: int, batch: int) -> Note:
    word = "fewer" if kappa > 1 else "more"
    factor = max(kappa, 1 / kappa)
    return Note(
        code="schedule-rescaled",
        message=f"From {current:,} to {batch:,} samples per update the same data is "
        f"{three_digits(factor)} times {word} optimizer steps: give schedule and warm-up their new "
        "length in steps.",
    )
