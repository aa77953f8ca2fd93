"""Reading a batch: how many samples it has, where it lies, and casting its tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
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
    """The batch with its tensors changed, wherever `tensors_in` finds them; the batch stays."""
    return pytree.tree_map(lambda leaf: _changed(change, leaf), batch)


def move(batch: Any, device: torch.device) -> Any:
    """The batch on a device; what can move itself (`.to(device)`, not only tensors) does so."""

    def moved(leaf: Any) -> Any:
        if callable(getattr(leaf, "to", None)):
            return leaf.to(device)
        return map_tensors(lambda tensor: tensor.to(device), leaf)

    return pytree.tree_map(moved, batch)


def describe_no_tensor(output: Any) -> tuple[str, str]:
    """What a loss function returned instead of a tensor, and what it should return of it."""
    if isinstance(output, Mapping):
        keys = [str(key) for key in output]
        found = f"a {type(output).__name__} with keys {', '.join(keys) or 'none'}"
        wanted = "its 'loss', output['loss']," if "loss" in keys else "one of them, a mean,"
        return found, f"return {wanted} from loss(model, batch)"
    found = "nothing" if output is None else f"a {type(output).__name__}"
    if isinstance(output, tuple | list):
        found += f" of {', '.join(type(part).__name__ for part in output) or 'nothing'}"
    return found, "return the mean over the batch from loss(model, batch)"


def _same_device(found: torch.device, wanted: torch.device) -> bool:
    if found.type != wanted.type:
        return False
    return None in (found.index, wanted.index) or found.index == wanted.index


def _changed(change: Callable[[Tensor], Tensor], leaf: Any) -> Any:
    """A leaf of PyTorch's trees, changed: a tensor, or a container that PyTorch does not know."""
    if isinstance(leaf, Tensor):
        return change(leaf)
    parts: dict[Any, Any] = {}
    if isinstance(leaf, MutableMapping):
        parts = dict(leaf)
    elif isinstance(leaf, list):
        parts = dict(enumerate(leaf))
    elif is_dataclass(leaf) and not isinstance(leaf, type):
        parts = {field.name: getattr(leaf, field.name) for field in fields(leaf)}
    if not any(True for part in parts.values() for _ in tensors_in(part)):
        return leaf
    fresh = copy.copy(leaf)
    # A frozen dataclass refuses plain assignment.
    put = object.__setattr__ if is_dataclass(leaf) else type(leaf).__setitem__
    for key, part in parts.items():
        put(fresh, key, map_tensors(change, part))
    return fresh
