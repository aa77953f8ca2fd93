"""Contiguous copies that CUDA kernels make of their inputs, made visible as operators of a trace.

Kernels of norms, softmax, embedding and attention copy an input that is not contiguous, and drop
the copy when they return. Here the copy is a `clone` beside the operator, alive as long.

The backward operators are replaced at the autograd key, so gradients of gradients would be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bsprof.predict.cuda.overrides import Kernel, operator

aten = torch.ops.aten

AUTOGRAD = "AutogradCPU"

BACKWARD: Mapping[str, tuple[int, ...]] = {
    "native_layer_norm_backward": (0, 1),
    "native_group_norm_backward": (0, 1),
    "_softmax_backward_data": (0, 1),
    "_log_softmax_backward_data": (0, 1),
    "embedding_dense_backward": (0,),
}
"""Positions of the arguments that are copied where they are not contiguous.

`native/cuda/layer_norm_kernel.cu`, `native/group_norm.cpp`, `native/cuda/SoftMax.cu`
(`host_softmax_backward`), `native/cuda/Embedding.cu`.
"""

ATTENTION_BACKWARD: Mapping[str, tuple[int, ...]] = {
    "_scaled_dot_product_flash_attention_backward": (0, 4),
    "_scaled_dot_product_efficient_attention_backward": (0,),
}
"""The same for attention, whose kernels see heads after positions: contiguous that way
(`native/transformers/cuda/attention_backward.cu`)."""


def contiguous_copy(tensor: torch.Tensor) -> torch.Tensor | None:
    """A copy if the tensor is not contiguous; nothing is recorded for the backward pass."""
    if tensor.is_contiguous():
        return None
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _copying(name: str, positions: Sequence[int], heads_first: bool) -> Kernel:
    call = operator(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            given = list(args)
            for position in positions:
                tensor = given[position]
                copy = contiguous_copy(tensor.transpose(1, 2) if heads_first else tensor)
                if copy is not None:
                    given[position] = copy.transpose(1, 2) if heads_first else copy
            return call(*given, **kwargs)

    return kernel


def backward_kernels() -> dict[str, Kernel]:
    """For the autograd key."""
    return {
        name: _copying(name, positions, table is ATTENTION_BACKWARD)
        for table in (BACKWARD, ATTENTION_BACKWARD)
        for name, positions in table.items()
    }


def layer_norm(
    input: torch.Tensor,  # noqa: A002 - the operator's own names
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,  # noqa: ARG001
) -> torch.Tensor:
    """What `aten::layer_norm` does; the copy is not what is kept for the backward pass."""
    copy = contiguous_copy(input)
    out: torch.Tensor = aten.native_layer_norm(input, normalized_shape, weight, bias, eps)[0]
    del copy
    return out


COMPOSITE_KERNELS: dict[str, Kernel] = {"layer_norm": layer_norm}
