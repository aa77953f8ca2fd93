"""When gradients travel between ranks: on the last piece of an update, and never before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, cast

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bsprof.errors import UsageError


class _Sharded(Protocol):
    """What FSDP2 (`torch.distributed.fsdp.fully_shard`) makes of a module."""

    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None: ...
    def set_is_last_backward(self, is_last_backward: bool) -> None: ...


class Synchronising:
    """How the gradients of a model are averaged over the ranks.

    Args:
        model: Plain on one rank; wrapped by `DistributedDataParallel`, or sharded by
            `fully_shard`, on several.
        world_size: Ranks of the run.

    Attributes:
        factor: What a loss is multiplied by so that the average over the ranks is a sum.
        same_count_needed: Whether every rank must run the same number of pieces.

    Raises:
        UsageError: several ranks, and a model whose gradients nobody would synchronise.
    """

    def __init__(self, model: nn.Module, world_size: int) -> None:
        self._ddp = model if isinstance(model, DistributedDataParallel) else None
        sharded = not self._ddp and hasattr(model, "set_requires_gradient_sync")
        self._sharded = cast(_Sharded, model) if sharded else None
        if world_size > 1 and self._ddp is None and self._sharded is None:
            raise UsageError(
                f"nobody would synchronise the gradients of a {type(model).__name__}",
                found=f"{world_size} ranks, and a model that is not wrapped",
                next_step="give the model as DistributedDataParallel or fully_shard returned it",
            )
        # Both average the ranks' gradients; the weights already count all ranks' samples.
        self.factor = float(world_size)
        self.same_count_needed = self._sharded is not None

    @property
    def is_sharded(self) -> bool:
        """Whether each rank holds a part of every gradient only."""
        return self._sharded is not None

    @contextmanager
    def piece(self, *, last: bool) -> Iterator[None]:
        """Around forward and backward of one piece; gradients travel in the last one."""
        if self._ddp is not None and not last:
            with self._ddp.no_sync():
                yield
        elif self._sharded is not None:
            self._sharded.set_requires_gradient_sync(last)
            self._sharded.set_is_last_backward(last)
            yield
        else:
            yield


def run_size() -> tuple[int, int]:
    """Rank and world size of this process; 0 and 1 without a process group."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
