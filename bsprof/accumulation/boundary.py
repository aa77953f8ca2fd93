"""The end of an update: unscale and clip once, step optimizer, scaler and scheduler once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from bsprof.errors import UsageError


class Boundary:
    """What happens once per update, after the last piece.

    Args:
        optimizer: Stepped once.
        scheduler: Stepped once after each step that the optimizer took: its length is in
            optimizer steps.
        scaler: Unscales before clipping; may skip the optimizer's step.
        clip_norm: Largest norm of the whole gradient; None does not clip.
        needs_norm: Whether the norm is wanted where nothing is clipped.

    Raises:
        UsageError: a scheduler that needs a metric, or a norm that is not positive.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        scheduler: LRScheduler | Sequence[LRScheduler] | None,
        scaler: GradScaler | None,
        clip_norm: float | None,
        needs_norm: bool,
    ) -> None:
        if clip_norm is not None and not clip_norm > 0:
            raise UsageError(f"the gradient cannot be clipped to a norm of {clip_norm}")
        self._optimizer = optimizer
        self._schedulers: tuple[LRScheduler, ...] = (
            ()
            if scheduler is None
            else tuple(scheduler)
            if isinstance(scheduler, Sequence)
            else (scheduler,)
        )
        if any(isinstance(s, ReduceLROnPlateau) for s in self._schedulers):
            raise UsageError(
                "ReduceLROnPlateau cannot be stepped once per update: it needs a metric",
                next_step="leave it out here, and step it after each validation",
            )
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._clip_norm = clip_norm
        self._needs_norm = needs_norm or clip_norm is not None
        self._steps_taken = 0
        optimizer.register_step_post_hook(self._after_step)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """All that the optimizer holds."""
        return [p for group in self._optimizer.param_groups for p in group["params"]]

    def scale(self, loss: Tensor) -> Tensor:
        """The loss as the backward pass wants it."""
        return loss if self._scaler is None else self._scaler.scale(loss)

    def loss_scale(self, device: torch.device) -> Tensor | None:
        """The scaler's factor, without waiting for the device; None without a scaler."""
        if self._scaler is None:
            return None
        return self._scaler.scale(torch.ones((), device=device))

    def zero_grad(self) -> None:
        """Drop the gradients."""
        self._optimizer.zero_grad(set_to_none=True)

    def step(self) -> tuple[bool, Tensor | None]:
        """Whether the optimizer stepped, and the norm before clipping, where it was computed."""
        norm = None
        if self._needs_norm:
            if self._scaler is not None:
                self._scaler.unscale_(self._optimizer)
            limit = math.inf if self._clip_norm is None else self._clip_norm
            norm = _whole(nn.utils.clip_grad_norm_(self.parameters, limit))
        taken = self._steps_taken
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        stepped = self._steps_taken > taken
        if stepped:
            for scheduler in self._schedulers:
                scheduler.step()
        return stepped, norm

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        """Count a step that was taken; fused optimizers are called to find that they skip."""
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is None or not bool(found_inf.item()):
            self._steps_taken += 1


def _whole(norm: Tensor) -> Tensor:
    """A norm over sharded gradients, put together from all ranks."""
    gather = getattr(norm, "full_tensor", None)
    return norm if gather is None else gather()
