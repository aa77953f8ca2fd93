"""`Workload.from_step`: a user's function that runs forward and backward itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bsprof.errors import UsageError, WorkloadError
from bsprof.workloads.adapters.models import model_function
from bsprof.workloads.signatures import accepts, check_call
from bsprof.workloads.workload import Workload


def from_step(
    step: Callable[..., Tensor | None],
    *,
    model: nn.Module | Callable[[], nn.Module],
    batch: Callable[[int, torch.device], Any],
    loss: Callable[[nn.Module, Any], Tensor] | None,
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None,
    count: Callable[[Any], int] | None,
    size: Callable[[Any], int] | None,
    dataset_size: int | None,
) -> Workload:
    """See `Workload.from_step`."""
    named = ("scale",) if accepts(step, "scale") else ()
    check_call("step", step, ("model", "batch"), named=named)
    return Workload(
        model=model_function(model),
        batch=batch,
        loss=_no_loss if loss is None else loss,
        micro_step=_checked(step),
        optimizer=optimizer,
        count=count,
        size=size,
        dataset_size=dataset_size,
    )


def _checked(step: Callable[..., Tensor | None]) -> Callable[..., Tensor | None]:
    """The step, looked at once: without a gradient nothing that is measured would be true."""
    looked = False

    @functools.wraps(step)
    def run(model: nn.Module, batch: Any, **scaling: float) -> Tensor | None:
        nonlocal looked
        returned = step(model, batch, **scaling)
        if not looked:
            looked = True
            _check_gradients(model, returned)
        return returned

    return run


def _check_gradients(model: nn.Module, returned: Tensor | None) -> None:
    if any(p.grad is not None for p in model.parameters()):
        return
    waiting = isinstance(returned, Tensor) and returned.requires_grad
    raise WorkloadError(
        "the step function has left no gradient",
        found="it returned a loss that nothing went backward from" if waiting else "",
        next_step="call loss.backward() in it and leave the gradients there: bsprof runs the "
        "optimizer and clears them; a function that only returns a loss belongs in "
        "Workload(loss=...)",
    )


def _no_loss(_model: nn.Module, _batch: Any) -> Tensor:
    raise UsageError(
        "--mode infer has nothing to run",
        found="a step function that runs forward and backward in one",
        next_step="give Workload.from_step a loss=, a function that runs the forward pass alone",
    )
