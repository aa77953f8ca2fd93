"""Gradients that are summed in 16 bits, and loss scaling, under accumulation."""

from __future__ import annotations

from collections.abc import Iterator

from bsprof.recommend.reasons import Ground
from bsprof.records import Note, Precision

_SIGNIFICANT_BITS = {Precision.BF16: 8, Precision.FP16: 11}


def on_precision(ground: Ground) -> Iterator[Note]:
    """Nothing where there is one piece: nothing is summed then."""
    steps, precision = ground.plan.accumulation_steps, ground.profile.workload.precision
    if steps < 2:
        return
    if precision in _SIGNIFICANT_BITS:
        lost = 2 ** _SIGNIFICANT_BITS[precision]
        amount = (
            f"with {steps:,} pieces the last ones are lost where they agree"
            if steps > lost
            else f"with {steps:,} pieces each is rounded to about 1/{max(1, lost // steps):,} of "
            "itself at the end"
        )
        yield Note(
            code="reduced-precision-accumulation",
            message=f"Gradients are summed in {precision}: what is below about 1/{lost} of the sum "
            f"so far is rounded away (its {_SIGNIFICANT_BITS[precision]} significant bits); "
            f"{amount}.",
            hint="accumulate in fp32: amp-bf16 keeps fp32 gradients, or sum into fp32 buffers",
        )
    if precision is Precision.AMP_FP16:
        yield Note(
            code="loss-scaling",
            message="Loss scaling under accumulation: keep one scale for all pieces of an update, "
            "and unscale, check, clip and update the scaler once at its end (PyTorch's AMP "
            "examples, gradient accumulation). A skipped update drops all its pieces, and steps no "
            "scheduler.",
        )
