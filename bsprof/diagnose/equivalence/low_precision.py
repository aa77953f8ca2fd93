"""What accumulation costs in the precision of training, beside rounding that is there anyway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bsprof.diagnose.equivalence import texts
from bsprof.diagnose.equivalence.gradients import SEED, Gradient, combined, difference, sow
from bsprof.diagnose.findings import Finding
from bsprof.records import Precision
from bsprof.workloads.precision import WEIGHT_TYPES, autocast
from bsprof.workloads.training import Training

TIMES = 2.0
"""Heuristic: error of adding up over that of rounding once; about ten bf16 pieces reach it."""
OWN_TIMES, LEAST = 3.0, 1e-3
"""Heuristic: error of the pieces over that of the whole batch in the same precision."""


FP16_SCALE = 1024.0
"""What a gradient scaler is for: fp16 has no numbers for small gradients."""


def low_precision(
    training: Training,
    whole: Any,
    pieces: Sequence[Any],
    weights: Sequence[float],
    exact: Gradient | None,
) -> list[Finding]:
    """Findings in the precision of the training.

    Args:
        training: Built in that precision.
        whole: The batch in the training's types; likewise its pieces.
        exact: The whole batch's gradient in double precision; None where it is not comparable.
    """
    each = [_gradient(training, [piece], [weight]) for piece, weight in _pairs(pieces, weights)]
    added_up = _gradient(training, pieces, weights)
    exact_sum = combined([_double(g) for g in each], [1.0] * len(each))
    found = []
    kind = WEIGHT_TYPES.get(training.spec.precision)
    if kind is not None and len(each) > 1:
        once = {name: g.to(kind).double() for name, g in exact_sum.items()}
        adding, rounding = difference(added_up, exact_sum), difference(once, exact_sum)
        if adding > TIMES * rounding > 0:
            name = training.spec.precision.value
            found.append(texts.low_precision(name, len(each), adding / rounding))
    if exact is not None and not found:
        own = difference(_gradient(training, [whole], [1.0]), exact)
        apart = difference(added_up, exact)
        if apart > OWN_TIMES * own and apart > LEAST:
            found.append(texts.rounding(training.spec.precision.value, apart, own))
    return found


def _gradient(training: Training, pieces: Sequence[Any], weights: Sequence[float]) -> Gradient:
    """As training leaves it: summed on the parameters, in their own type; in double precision."""
    spec, model = training.spec, training.model
    scale = FP16_SCALE if spec.precision in (Precision.AMP_FP16, Precision.FP16) else 1.0
    model.zero_grad(set_to_none=True)
    sow(SEED)
    for piece, weight in _pairs(pieces, weights):
        with autocast(spec.precision, training.device):
            loss = training.workload.loss(model, piece)
        (loss * (weight * scale)).backward()  # type: ignore[no-untyped-call]
    found = {
        name: p.grad.detach().to_dense().double() / scale
        for name, p in model.named_parameters()
        if p.grad is not None
    }
    model.zero_grad(set_to_none=True)
    return found


def _double(gradient: Gradient) -> Gradient:
    return {name: g.double() for name, g in gradient.items()}


def _pairs(pieces: Sequence[Any], weights: Sequence[float]) -> zip[tuple[Any, float]]:
    return zip(pieces, weights, strict=True)
