"""Reading a batch: how many samples it has, where it lies, and casting its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bsprof.errors import WorkloadError
from bsprof.workloads.faults import user_code
from bsprof.workloads.workload import Workload


def tensors_in(batch: Any) -> Iterator[Tensor]:
    """Every tensor in a batch of tuples, lists, mappings and dataclasses, in order."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for part in batch.values():
            yield from tensors_in(part)
    elif isinstance(batch, tuple | list):
        for part in batch:
            yield from tensors_in(part)
    elif is_dataclass(batch) and not isinstance(batch, type):
        for field in fields(batch):
            yield from tensors_in(getattr(batch, field.name))


def observed_size(workload: Workload, batch: Any) -> int:
    """Samples in a batch: by the workload's `size`, else the first tensor's leading dimension.

    Raises:
        WorkloadError: there is no tensor to read, or `size` raised.
    """
    if workload.size is not None:
        with user_code("`size` of the workload cannot read its batch"):
            return int(workload.size(batch))
    for tensor in tensors_in(batch):
        if tensor.dim() > 0:
            return tensor.shape[0]
    raise WorkloadError(
        "cannot read back how many samples the batch has",
        found=f"no tensor with a leading dimension in a {type(batch).__name__}",
        next_step="return tensors from batch(), or give the Workload a `size` function",
    )


def check_batch(workload: Workload, batch: Any, wanted: int, device: torch.device) -> None:
    """Refuse a batch of another size than asked for, or on another device.

    Raises:
        WorkloadError: naming both sizes or both devices.
    """
    found = observed_size(workload, batch)
    if found != wanted:
        raise WorkloadError(
            f"batch({wanted}, device) returned {found} samples, not {wanted}",
            found=describe(batch),
            next_step="make the batch as large as asked; where the leading dimension of its first "
            "tensor is not the batch, give the Workload a `size` function",
        )
    for tensor in tensors_in(batch):
        # A zero-dimensional CPU tensor may meet tensors of any device.
        if tensor.dim() > 0 and not _same_device(tensor.device, device):
            raise WorkloadError(
                f"batch({wanted}, device) returned a tensor on {tensor.device}, not on {device}",
                found=describe(batch),
                next_step="make the tensors on the device that batch() is given",
            )


def describe(batch: Any) -> str:
    """Shapes and types of the first tensors of a batch, for a message."""
    shapes = [f"{str(t.dtype).removeprefix('torch.')} {tuple(t.shape)}" for t in tensors_in(batch)]
    more = ", ..." if len(shapes) > 4 else ""
    return f"{type(batch).__name__} with {', '.join(shapes[:4]) or 'no tensors'}{more}"


def map_tensors(change: Callable[[Tensor], Tensor], batch: Any) -> Any:
    """The batch with its tensors changed; containers that PyTorch cannot rebuild stay as is."""
    return pytree.tree_map_only(Tensor, change, batch)


def _same_device(found: torch.device, wanted: torch.device) -> bool:
    if found.type != wanted.type:
        return False
    return None in (found.index, wanted.index) or found.index == wanted.index
