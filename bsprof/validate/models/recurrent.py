"""An LSTM of one layer under a squared error, as a GPU benchmark times it."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.workloads.workload import Workload

WIDTH = 256
"""Of input and state: 526,336 parameters."""

Batch = tuple[Tensor, Tensor]
"""Inputs and targets, each (b, n, width)."""


def workload(seq_len: int = 100) -> Workload:
    """The workload.

    Args:
        seq_len: Steps of a sample.
    """

    def batch(micro_batch_size: int, device: torch.device) -> Batch:
        shape = (micro_batch_size, seq_len, WIDTH)
        return torch.randn(shape, device=device), torch.randn(shape, device=device)

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        states, _ = model(batch[0])
        return F.mse_loss(states, batch[1])

    return Workload(
        model=lambda: nn.LSTM(WIDTH, WIDTH, batch_first=True),
        batch=batch,
        loss=loss,
        uses_seq_len=True,
    )
