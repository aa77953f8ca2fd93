"""The one optimizer in what a LightningModule's `configure_optimizers` returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer

from bsprof.errors import WorkloadError


def single_optimizer(configured: Any) -> Optimizer:
    """The optimizer; schedules beside it are left out.

    Takes the forms that Lightning takes: an optimizer, a dictionary with the key `optimizer`, a
    list of one of these, or a pair of lists, optimizers and schedules.

    Raises:
        WorkloadError: none, several, or something else.
    """
    found = _optimizers(configured)
    if len(found) == 1 and isinstance(found[0], Optimizer):
        return found[0]
    if len(found) > 1:
        raise WorkloadError(
            "cannot measure a module with several optimizers",
            found=f"configure_optimizers returned {', '.join(type(o).__name__ for o in found)}",
            next_step="measure one at a time: Workload.from_step with one optimizer and the "
            "forward and backward pass that it follows",
        )
    raise WorkloadError(
        "configure_optimizers must return an optimizer",
        found="nothing" if configured is None else f"a {type(configured).__name__}",
        next_step="return a torch.optim.Optimizer, alone or as {'optimizer': ...}",
    )


def _optimizers(configured: Any) -> list[Any]:
    if isinstance(configured, Mapping):
        return [configured.get("optimizer")]
    if not isinstance(configured, list | tuple):
        return [configured]
    if len(configured) == 2 and isinstance(configured[0], list | tuple):
        return list(configured[0])  # ([optimizers], [schedules])
    return [optimizer for part in configured for optimizer in _optimizers(part)]
