"""How much each piece counts, so that the sum of the pieces is the mean over the whole batch.

A loss that averages over what it counts (samples, tokens) gets the piece's count over that of all
pieces of all ranks. The numbers stay tensors where they had to be summed over the ranks: reading
them back would make the host wait for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bsprof.errors import UsageError, WorkloadError


class Weigh(StrEnum):
    """What the loss averages over, and so what a piece's weight counts.

    `equal` gives every piece the same weight, as most trainers do: exact only for pieces with
    equally many samples (or tokens, where the loss averages over these).
    """

    SAMPLES = "samples"
    TOKENS = "tokens"
    EQUAL = "equal"


Weight = float | Tensor
"""A piece's share of an update: the loss is multiplied by it."""


def counted(pieces: Sequence[Any], count: Callable[[Any], Any]) -> list[int]:
    """What the loss of each piece averages over, by the user's function.

    Raises:
        WorkloadError: a count that is no whole number of at least 0.
    """
    counts = []
    for piece in pieces:
        found = int(count(piece))
        if found < 0:
            raise WorkloadError(
                "cannot weigh the pieces by what they count",
                found=f"count(batch) returned {found}",
                next_step="return the number of tokens that the loss of the batch averages over",
            )
        counts.append(found)
    return counts


def sum_over_ranks(total: int, device: torch.device) -> Tensor:
    """The sum of a count over all ranks, as a tensor on the device, without waiting for it."""
    number = torch.tensor(total, dtype=torch.int64, device=device)
    dist.all_reduce(number)
    return number


def weights_of(counts: Sequence[int], total: int | Tensor, factor: float) -> list[Weight]:
    """Weights of this rank's pieces.

    Args:
        counts: Of this rank's pieces.
        total: Of all pieces of all ranks.
        factor: World size, where what follows averages over the ranks; else 1.

    Raises:
        UsageError: the update counts nothing at all.
    """
    if isinstance(total, Tensor):
        # One division in double precision; mps has none.
        kind = torch.float32 if total.device.type == "mps" else torch.float64
        unit = factor / total.clamp(min=1).to(kind)
        return [count * unit for count in counts]
    if total == 0:
        raise UsageError(
            "the update has nothing to average over",
            found="no token that the loss counts, in any piece",
            next_step="leave such batches out",
        )
    return [factor * count / total for count in counts]


def weighted(loss: Tensor, weight: Weight) -> Tensor:
    """The loss times its weight, in the loss's own type."""
    if isinstance(weight, Tensor):
        return loss * weight.to(loss.dtype)
    return loss if weight == 1.0 else loss * weight
