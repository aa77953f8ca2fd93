"""Cuts a batch into pieces along its samples: tensors, mappings, tuples, lists, dataclasses."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from bsprof.errors import UsageError
from bsprof.workloads.batches import describe, move, tensors_in

Split = Callable[[Any, int, int], Any]
"""`split(batch, start, stop)`: the samples from `start` to before `stop`, as a batch."""


def batch_size(batch: Any) -> int:
    """Samples in a batch: the leading dimension of its first tensor.

    Raises:
        UsageError: no tensor has one.
    """
    for tensor in tensors_in(batch):
        if tensor.dim() > 0:
            return tensor.shape[0]
    raise UsageError(
        "cannot tell how many samples the batch has",
        found=describe(batch),
        next_step="give `size=`, a function from a batch to its number of samples",
    )


def split_batch(batch: Any, sizes: Sequence[int], *, size: int, split: Split | None) -> list[Any]:
    """The pieces of a batch, in order; views, nothing is copied.

    Every tensor whose leading dimension is the number of samples is cut, and so is a list of so
    many things that are no tensors. Tensors without dimensions, tensors with a leading dimension
    of 1, and what is no tensor go to every piece.

    Args:
        sizes: Samples of each piece; together all of the batch.
        size: Samples in the batch.
        split: The user's own way to cut; None for the above.

    Raises:
        UsageError: a tensor of another leading dimension: where its samples are is unknown.
    """
    if len(sizes) == 1:
        return [batch]
    pieces, start = [], 0
    for count in sizes:
        pieces.append(part_of(batch, start, start + count, size=size, split=split))
        start += count
    return pieces


def part_of(batch: Any, start: int, stop: int, *, size: int, split: Split | None) -> Any:
    """The samples from `start` to before `stop`, as `split_batch` cuts."""
    return _part(batch, start, stop, size) if split is None else split(batch, start, stop)


def to_device(piece: Any, device: torch.device) -> Any:
    """The piece on a device; untouched where all of its tensors lie there already."""
    if all(tensor.device == device for tensor in tensors_in(piece)):
        return piece
    return move(piece, device)


def _part(part: Any, start: int, stop: int, size: int) -> Any:
    if isinstance(part, Tensor):
        return _rows(part, start, stop, size)
    if isinstance(part, Mapping):
        return _rebuilt(part, {k: _part(v, start, stop, size) for k, v in part.items()})
    if isinstance(part, tuple | list):
        if len(part) == size and not any(_has_rows(item, size) for item in part):
            return part[start:stop]
        parts = [_part(item, start, stop, size) for item in part]
        if isinstance(part, tuple) and hasattr(part, "_fields"):
            return type(part)(*parts)
        return type(part)(parts)
    if is_dataclass(part) and not isinstance(part, type):
        fresh = copy.copy(part)
        for field in fields(part):
            value = _part(getattr(part, field.name), start, stop, size)
            object.__setattr__(fresh, field.name, value)  # a frozen one refuses plain assignment
        return fresh
    return part


def _rows(tensor: Tensor, start: int, stop: int, size: int) -> Tensor:
    if tensor.dim() == 0:
        return tensor
    if tensor.shape[0] == size:
        return tensor[start:stop]
    if tensor.shape[0] == 1:
        return tensor
    raise UsageError(
        "cannot cut the batch into pieces",
        found=f"a tensor of shape {tuple(tensor.shape)} in a batch of {size} samples",
        next_step="give `split=`, a function of (batch, start, stop) that returns those samples",
    )


def _has_rows(part: Any, size: int) -> bool:
    return any(tensor.dim() > 0 and tensor.shape[0] == size for tensor in tensors_in(part))


def _rebuilt(mapping: Mapping[Any, Any], parts: dict[Any, Any]) -> Any:
    """A mapping of the same kind: tokenisers return their own, whose attributes stay."""
    if type(mapping) is dict or not isinstance(mapping, MutableMapping):
        return parts
    fresh = copy.copy(mapping)
    for key, value in parts.items():
        fresh[key] = value
    return fresh
