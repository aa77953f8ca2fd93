"""A moving average of the weights, kept beside them and updated once per optimizer step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

DECAY = 0.999
"""PyTorch's own default (`torch.optim.swa_utils.get_ema_multi_avg_fn`); it costs the same as any
other."""


class MovingAverage:
    """average = DECAY * average + (1 - DECAY) * weight, starting from the weights as they are.

    Kept are the parameters that are trained (frozen ones are their own average) in their own type,
    and a copy of the buffers, as `torch.optim.swa_utils.AveragedModel` keeps them.

    Args:
        model: Whose weights are averaged.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        # One list for each device and type: only then are they updated together.
        self._groups: dict[tuple[torch.device, torch.dtype], tuple[list[Tensor], list[Tensor]]] = {}
        for parameter in model.parameters():
            if parameter.requires_grad:
                key = (parameter.device, parameter.dtype)
                averages, weights = self._groups.setdefault(key, ([], []))
                averages.append(parameter.detach().clone())
                weights.append(parameter)
        self._buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}

    @torch.no_grad()
    def update(self) -> None:
        """Follow the weights as they are now, and copy the buffers."""
        for averages, weights in self._groups.values():
            torch._foreach_lerp_(averages, weights, 1 - DECAY)
        for name, buffer in self._model.named_buffers():
            kept = self._buffers.get(name)
            if kept is not None and kept.shape == buffer.shape:
                kept.copy_(buffer)
            else:  # some models make buffers, or larger ones, as they run
                self._buffers[name] = buffer.detach().clone()

    def tensors(self) -> Iterator[Tensor]:
        """The averages, then the copies of buffers."""
        for averages, _ in self._groups.values():
            yield from averages
        yield from self._buffers.values()
