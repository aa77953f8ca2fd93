"""Loss scaling without reading values: the scaler of torch, which always takes the step.

A real fp16 run skips updates whose gradients overflow, mostly the first ones; what it allocates
in a steady update is the same. `torch.amp.GradScaler("cuda")` stands on fake CPU tensors here:
the scale, its tracker and each optimizer's `found_inf` are blocks of their own (512 bytes), and
gradients are unscaled in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler

from bsprof.predict.cuda.overrides import attribute


def _always_step(
    self: GradScaler,  # noqa: ARG001
    optimizer: torch.optim.Optimizer,
    optimizer_state: dict[str, Any],  # noqa: ARG001
    *args: Any,
    **kwargs: Any,
) -> float | None:
    loss: float | None = optimizer.step(*args, **kwargs)
    return loss


@contextmanager
def cuda_scaler() -> Iterator[None]:
    """Has `GradScaler("cuda")` (and `torch.cuda.amp.GradScaler`) work without a device."""
    begin = GradScaler.__init__

    def __init__(  # noqa: N807
        self: GradScaler, device: str = "cuda", *args: Any, **kwargs: Any
    ) -> None:
        begin(self, "cpu" if device == "cuda" else device, *args, **kwargs)

    with ExitStack() as stack:
        stack.enter_context(attribute(GradScaler, "__init__", __init__))
        stack.enter_context(attribute(GradScaler, "_maybe_opt_step", _always_step))
        yield
