"""Bytes that an operator must move: what it reads and writes, each once, caches ignored.

This is compulsory traffic at the operator's border. What a kernel reads twice inside is the
matter of a class's efficiency, not of this count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from bsprof.accounting.operators import Arguments

# Looked up once: these functions run for every tensor of every operator.
_STRIDED = torch.strided
_TENSOR = torch.Tensor
_SEQUENCES = (list, tuple)


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the distinct elements of a tensor: expanded dimensions count once."""
    if tensor.layout is not _STRIDED:
        return _irregular_bytes(tensor)
    size = tensor.nbytes
    if size:
        strides = tensor.stride()
        if 0 in strides:
            for length, stride in zip(tensor.shape, strides, strict=True):
                if stride == 0:
                    size //= length
    return size


def _irregular_bytes(tensor: torch.Tensor) -> int:
    """Bytes of a sparse tensor's indices and values; of any other layout, of all elements."""
    if tensor.layout is torch.sparse_coo:
        return tensor_bytes(tensor._values()) + tensor_bytes(tensor._indices())
    return tensor.numel() * tensor.element_size()


def value_bytes(value: Any) -> int:
    """Bytes of a tensor, or of all tensors in a list; anything else moves nothing."""
    if isinstance(value, _TENSOR):
        return tensor_bytes(value)
    if isinstance(value, _SEQUENCES):
        total = 0
        for item in value:
            total += tensor_bytes(item) if isinstance(item, _TENSOR) else value_bytes(item)
        return total
    return 0


def tensors_in(value: Any) -> Iterable[torch.Tensor]:
    """All tensors in an operator's argument or result, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def _index_bytes(arguments: Arguments) -> int:
    return sum(value_bytes(arguments.get(name)) for name in ("index", "indices", "offsets"))


def lookup_bytes(arguments: Arguments, outputs: Sequence[Any]) -> int:
    """Rows read = rows written, plus the indices; the rest of the table is not touched."""
    return _index_bytes(arguments) + 2 * value_bytes(outputs)


def _source_bytes(arguments: Arguments) -> int:
    for name in ("src", "source", "values"):
        if isinstance(arguments.get(name), torch.Tensor):
            return tensor_bytes(arguments[name])
    # A scalar source writes as many elements of `self` as there are indices.
    index = arguments.get("index")
    if isinstance(index, torch.Tensor):
        return index.numel() * int(arguments["self"].element_size())
    return 0


def scatter_bytes(arguments: Arguments, outputs: Sequence[Any]) -> int:
    """Indices, source, and the touched elements read and written.

    Out of place (the result is another tensor than `self`) a copy of `self` comes first.
    """
    touched = _index_bytes(arguments) + 3 * _source_bytes(arguments)
    if outputs and outputs[0] is not arguments["self"]:
        return value_bytes(arguments["self"]) + tensor_bytes(outputs[0]) + touched
    return touched


def chosen_bytes(arguments: Arguments, outputs: Sequence[Any]) -> int:
    """Losses that read one entry of each row: the targets, their entries, and what is returned."""
    target = arguments["target"]
    entries = int(target.numel()) * int(arguments["self"].element_size())
    return value_bytes(target) + entries + value_bytes(outputs)


def overwrite_bytes(arguments: Arguments, outputs: Sequence[Any]) -> int:
    """In-place operators that write `self` without reading it (`copy_`, `fill_`, `normal_`).

    Out of place the result is written on top of what is read.
    """
    moved = sum(value_bytes(value) for value in arguments.values())
    if outputs and outputs[0] is not arguments.get("self"):
        moved += value_bytes(outputs)
    return moved


def optimizer_bytes(arguments: Arguments, _: Sequence[Any]) -> int:
    """A fused optimizer: everything read once; parameters and state written, gradients not.

    With a gradient scale the kernel stores the unscaled gradients as well.
    """
    read = sum(value_bytes(value) for value in arguments.values())
    kept = ("self", "exp_avgs", "exp_avg_sqs", "momentum_buffer_list", "state_sums")
    written = sum(value_bytes(arguments.get(name)) for name in kept)
    if arguments.get("amsgrad"):
        written += value_bytes(arguments.get("max_exp_avg_sqs"))
    if arguments.get("grad_scale") is not None:
        written += value_bytes(arguments.get("grads"))
    return read + written


def nothing_bytes(_arguments: Arguments, _outputs: Sequence[Any]) -> int:
    """Operators that move nothing worth counting."""
    return 0
