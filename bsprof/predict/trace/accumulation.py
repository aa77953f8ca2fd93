"""Where autograd would change a tensor in place, and does not while its operators are watched.

The engine adds up gradients of a tensor that was used twice. It adds in place where it alone holds
the first of them, but never under a dispatch mode (`can_accumulate_inplace` in
`torch/csrc/autograd/input_buffer.cpp` asks `isTensorSubclassLike`); likewise some formulas of
derivatives (`torch/csrc/autograd/FunctionsManual.cpp`, `areAnyTensorSubclassLike`). A trace has
to show what happens unwatched.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

ADD = aten.add.Tensor

IN_PLACE = {
    ADD: aten.add_.Tensor,
    aten.index_put.default: aten.index_put_.default,
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
}
"""Operators of the engine, and of formulas on zeros they have just made, and how they would run."""


def holders(tensor: Tensor) -> tuple[int, int, int]:
    """References to a tensor and to its storage; only to be compared with `alone`."""
    storage = tensor.untyped_storage()
    return (
        tensor._use_count(),  # type: ignore[attr-defined]
        sys.getrefcount(tensor),
        torch._C._storage_Use_Count(storage._cdata),
    )


@functools.cache
def alone() -> tuple[int, int, int]:
    """What `holders` gives, called by an operator's handler, where only the engine holds it.

    Found out by a small backward pass: it depends on how torch keeps its Python objects.
    """
    found: list[tuple[int, int, int]] = []

    class Probe(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            if func is ADD and torch._C._current_graph_task_id() != -1:
                found.append(holders(args[0]))
            return func(*args, **(kwargs or {}))

    # Not fake: modes treat all tensors alike.
    x = torch.ones(2, requires_grad=True)
    with Probe():  # type: ignore[no-untyped-call]
        y = x.exp()
        (y.sin() + y.cos()).sum().backward()  # type: ignore[no-untyped-call]
    assert found, "autograd added no gradients"
    return found[0]


def is_dense(tensor: Tensor) -> bool:
    """Whether a tensor's elements fill its memory without gaps, each once, in any order."""
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length == 1:
            continue
        if stride != expected:
            return length == 0 or tensor.numel() == 0
        expected *= length
    return True
