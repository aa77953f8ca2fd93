"""What stays in memory between two steps, by owner and by storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bsprof.records import Category
from bsprof.workloads.optimizers import state_tensors


def storages_by_category(
    model: nn.Module, optimizer: Optimizer | None, averages: Iterable[Tensor] = ()
) -> dict[Category, tuple[torch.UntypedStorage, ...]]:
    """Storages of weights (with buffers), gradients and optimizer state.

    A storage that several tensors share is named once, under the first of the three.

    Args:
        model: Trained or not, with its gradients as they are now.
        optimizer: None in inference.
        averages: Moving averages of weights and buffers. They count as weights: like these they
            are there before the first step, have the weights' type, and stay with any optimizer.
    """
    parameters = list(model.parameters())
    owners: dict[Category, Iterable[Tensor]] = {
        Category.WEIGHTS: [*parameters, *model.buffers(), *averages],
        Category.GRADIENTS: [p.grad for p in parameters if p.grad is not None],
        Category.OPTIMIZER_STATE: [] if optimizer is None else state_tensors(optimizer),
    }
    seen: set[int] = set()
    found: dict[Category, tuple[torch.UntypedStorage, ...]] = {}
    for category, tensors in owners.items():
        fresh = []
        for storage in (s for tensor in tensors for s in _storages(tensor)):
            # The address of the storage object, not of its bytes: empty storages have none.
            if storage._cdata not in seen:
                seen.add(storage._cdata)
                fresh.append(storage)
        found[category] = tuple(fresh)
    return found


def _storages(tensor: Tensor) -> Iterator[torch.UntypedStorage]:
    if tensor.layout is torch.sparse_coo:
        yield tensor._indices().untyped_storage()
        yield tensor._values().untyped_storage()
    else:
        yield tensor.untyped_storage()
