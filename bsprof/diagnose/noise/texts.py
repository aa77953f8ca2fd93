"""What a noise scale says about the target, and what it does not. Pure."""

from __future__ import annotations

from bsprof.diagnose.noise.records import NoiseAtStep, NoiseEstimate
from bsprof.units import format_count

INDICATION = (
    "Take it as a lower indication, by order of magnitude, never as the best batch: for language "
    "models, batches that cost nothing were larger by orders of magnitude than the noise scale "
    "(arXiv 2505.23971)."
)
PLACE = (
    "It holds for these weights: it usually grows in training, most of it early. Measure again "
    "with a model that has loaded a checkpoint."
)
BRANCH_TEST = (
    "What decides is a branch test: from one checkpoint, train k times the batch with sqrt(k) "
    "times the learning rate for the same number of tokens, and keep the largest k whose loss is "
    "worse by no more than 0.01 (arXiv 2505.23971)."
)


def sentences(
    plain: NoiseEstimate,
    preconditioned: NoiseEstimate | None,
    steps: tuple[NoiseAtStep, ...],
) -> tuple[str, ...]:
    """The answer in words, the number first."""
    found = [_number(plain)]
    if plain.noise_scale is not None:
        value = format_count(plain.noise_scale.value)
        found.append(
            f"Batches far below {value} samples: twice the batch needs about half the steps; far "
            "above: hardly fewer (arXiv 1812.06162, appendix A)."
        )
    if preconditioned is not None:
        found.append(_preconditioned(preconditioned))
    moves = _moves(steps)
    if moves:
        found.append(moves)
    return (*found, INDICATION, PLACE, BRANCH_TEST)


def _number(estimate: NoiseEstimate) -> str:
    scale = estimate.noise_scale
    if scale is None:
        return f"Gradient noise scale: {estimate.reason}."
    return (
        f"Gradient noise scale: {format_count(scale.value)} samples, 90 % interval "
        f"{format_count(scale.low)} to {format_count(scale.high)}, from {estimate.pieces} pieces."
    )


def _preconditioned(estimate: NoiseEstimate) -> str:
    scale = estimate.noise_scale
    if scale is None:
        return f"As the optimizer sees it (gradients over sqrt(v) + eps): {estimate.reason}."
    return (
        f"As the optimizer sees it (gradients over sqrt(v) + eps): {format_count(scale.value)} "
        f"samples, {format_count(scale.low)} to {format_count(scale.high)}."
    )


def _moves(steps: tuple[NoiseAtStep, ...]) -> str:
    """First against last step, where both are known."""
    known = [(s.step, s.plain.noise_scale) for s in steps if s.plain.noise_scale is not None]
    if len(known) < 2:
        return ""
    (first, before), (last, after) = known[0], known[-1]
    apart = before.high < after.low or after.high < before.low
    numbers = (
        f"from {format_count(before.value)} before step {first + 1} to "
        f"{format_count(after.value)} before step {last + 1}"
    )
    if not apart:
        return f"Over these steps it shows no movement beyond its error ({numbers})."
    return f"Over these steps it moved {numbers}."
