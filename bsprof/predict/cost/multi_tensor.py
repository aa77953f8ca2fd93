"""Kernels of operators on lists of tensors (`aten/src/ATen/native/cuda/MultiTensorApply.cuh`).

A launch takes as many chunks of 65,536 elements, and as many tensors, as its arguments can name;
the more lists there are, the fewer tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from bsprof.predict.stream import Operator

CHUNK = 65536
"""Elements that a block takes."""

MOST_BLOCKS = 320
"""Of a launch."""

MOST_TENSORS = (110, 64, 48, 36, 30)
"""Of a launch, by number of lists from one. CUDA 13 builds allow some seven times as many."""


def multi_tensor_launches(operator: Operator) -> int:
    """Launches of one call, from the lists that it was given."""
    lists = max(1, int(operator.attributes.get("lists") or 1))
    tensors = [*operator.inputs, *operator.outputs]
    elements = [prod(t.shape) for t in tensors[: len(tensors) // lists]]
    if "foreach_norm" in operator.name:
        # `ForeachReduceOp.cu`: results are not in the lists; a second kernel sums the chunks.
        return launches(elements, 1) + 1
    # Step counters of fused optimizers (`fused_adam_impl.cu`) have a place of their own.
    counted = lists - 1 if "_fused_ada" in operator.name else lists
    return launches(elements, max(1, counted))


def launches(elements: Sequence[int], lists: int) -> int:
    """Launches for tensors of so many elements each, in so many lists.

    As the loop in `multi_tensor_apply` counts: a launch goes off when its tensors are full and the
    last one's chunks are all in, when its blocks are full, and at the end.
    """
    most = MOST_TENSORS[min(lists, len(MOST_TENSORS)) - 1]
    count = tensors = blocks = 0
    sizes = [size for size in elements if size > 0]
    for number, size in enumerate(sizes):
        left = -(-size // CHUNK)
        tensors += 1
        while left:
            taken = min(left, MOST_BLOCKS - blocks)
            left -= taken
            blocks += taken
            is_last = number == len(sizes) - 1 and not left
            if blocks == MOST_BLOCKS or (tensors == most and not left) or is_last:
                count += 1
                blocks = 0
                # A tensor whose chunks are not all in goes on in the next launch.
                tensors = 1 if left else 0
    return count
