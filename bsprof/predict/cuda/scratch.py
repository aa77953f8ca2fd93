"""Memory that CUDA kernels of torch take from the allocator while they run. Pure: loads no torch.

What a kernel allocates inside itself and drops before it returns does not show in a trace. Each
formula names the source file it was read from (pytorch/pytorch, 2022 to 2026). What is not listed
takes nothing, or less than a MiB (partial sums of norms, semaphores of reductions). Convolution
and matrix-product workspaces are the libraries' and not counted here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod

from bsprof.predict.stream import Operator
from bsprof.predict.target import TraceTarget

FLOAT = 4
INDEX = 8

FLASH_ROWS = 128
"""Query lengths are rounded up to it (`flash_attn/flash_api.cpp`, `mha_bwd`)."""

EFFICIENT_ROWS = 64
"""Of a tile of queries, and of head sizes (`mem_eff_attention/kernel_backward.h`)."""

EMBEDDING_SORTS_FROM = 3073
"""Fewer indices are summed without sorting (`native/cuda/Embedding.cu`)."""

EMBEDDING_PART = 10
"""Rows that one warp sums (`native/cuda/EmbeddingBackwardKernel.cu`, `NROWS_PER_THREAD`)."""

NORM_CHUNK = 65536
"""Elements that one block of the multi-tensor kernels takes (`ForeachReduceOp.cu`)."""


def kernel_scratch(operator: Operator, target: TraceTarget) -> int:
    """Bytes that the operator's kernels hold at once beside its inputs and outputs."""
    rule = _RULES.get(operator.name)
    return 0 if rule is None else rule(operator, target)


def _up(value: int, multiple: int) -> int:
    return ceil(value / multiple) * multiple


def _flash_backward(operator: Operator, target: TraceTarget) -> int:  # noqa: ARG001
    """Gradient of the query in fp32, one number a row, and dK, dV of every head if they are shared.

    `flash_attn/flash_api.cpp`, `mha_bwd`: `dq_accum`, `softmax_d`, `dk_expanded`, `dv_expanded`.
    """
    query, key = operator.inputs[1], operator.inputs[2]
    *_, heads, length, size = query.shape
    samples = prod(query.shape[:-3])
    rows = samples * heads * _up(length, FLASH_ROWS)
    accumulated = rows * _up(size, 32 if size <= 128 else 64) * FLOAT
    expanded = 0
    if key.shape[-3] != heads:
        expanded = 2 * samples * heads * key.shape[-2] * size * query.item_bytes
    return accumulated + rows * FLOAT + expanded


def _cudnn_attention_backward(operator: Operator, target: TraceTarget) -> int:
    """As much as flash's: cuDNN accumulates the query's gradient in fp32 too (estimate)."""
    return _flash_backward(operator, target)


def _efficient_forward(operator: Operator, target: TraceTarget) -> int:  # noqa: ARG001
    """An fp32 output where a 16-bit value head is wider than the 128 that fit in registers.

    `cuda/attention.cu`, `_efficient_attention_forward`: `kNeedsOutputAccumulatorBuffer`.
    """
    value, out = operator.inputs[2], operator.outputs[0]
    wide = value.item_bytes == 2 and value.shape[-1] > 128
    return prod(out.shape) * FLOAT if wide else 0


def _efficient_backward(operator: Operator, target: TraceTarget) -> int:
    """16 bit: the query's gradient in fp32 and one number a row. fp32: a product of output's size.

    `cuda/attention_backward.cu` (`delta`) and `kernel_backward.h` (`workspace_size`): 16-bit
    kernels compute `delta` themselves, save for wide heads on Volta, where output and its gradient
    are converted and multiplied first.
    """
    grad, query, key, value = operator.inputs[:4]
    *_, heads, length, size = query.shape
    rows = prod(query.shape[:-3]) * heads * length
    product = prod(grad.shape) * FLOAT
    if query.item_bytes > 2:
        return product + rows * FLOAT
    tiles = prod(query.shape[:-3]) * heads * _up(length, EFFICIENT_ROWS) * _up(size, EFFICIENT_ROWS)
    staged = 0
    if max(size, value.shape[-1]) > EFFICIENT_ROWS * 2:  # dK, dV no longer fit in registers
        widths = _up(size, EFFICIENT_ROWS) + _up(value.shape[-1], EFFICIENT_ROWS)
        staged = prod(query.shape[:-3]) * heads * min(key.shape[-2], 2 * EFFICIENT_ROWS) * widths
    workspace = (tiles + staged + rows) * FLOAT
    volta = target.compute_capability < (7, 5) and size > EFFICIENT_ROWS
    return max(workspace, 3 * product) if volta else workspace


def _embedding_backward(operator: Operator, target: TraceTarget) -> int:  # noqa: ARG001
    """Sorted indices, four arrays on segments, and one fp32 row for each part of a segment.

    `native/cuda/EmbeddingBackwardKernel.cu`: `grad_weight_per_segment` and the arrays before it.
    A segment is what has the same index, a part at most ten of it (`NROWS_PER_THREAD`), so there
    are no more than `max_partial_segment` parts; the oldest versions took one row an index instead.
    Sorting takes as much again as its two arrays while it runs, before those exist.
    """
    grad, indices, weight = operator.inputs[0], operator.inputs[1], operator.outputs[0]
    count = prod(indices.shape)
    if count < EMBEDDING_SORTS_FROM:
        return 0
    segments = min(count, weight.shape[0])
    parts = count // EMBEDDING_PART + segments
    index = indices.item_bytes
    summing = parts * grad.shape[-1] * FLOAT + (3 * count + 2 * segments + parts) * index
    return max(summing, 4 * count * index)


def _index_put(operator: Operator, target: TraceTarget) -> int:  # noqa: ARG001
    """Adding at indices sorts them: linear, sorted and original ones, and the sort's own two.

    `native/cuda/Indexing.cu`, `index_put_with_sort_kernel`. Without adding, as in
    `y[idx] = x`, which comes without the attribute, nothing is sorted.
    """
    if not operator.attributes.get("accumulate", False):
        return 0
    counts = [prod(o.shape) for o in operator.inputs[1:-1] if o.dtype in ("int64", "int32")]
    return 5 * INDEX * max(counts, default=0)


def _sort(operator: Operator, target: TraceTarget) -> int:  # noqa: ARG001
    """A second buffer of keys and of indices (`native/cuda/Sort.cpp`, radix sort)."""
    keys = operator.inputs[0]
    return keys.bytes + prod(keys.shape) * INDEX


def _foreach_norm(operator: Operator, target: TraceTarget) -> int:  # noqa: ARG001
    """One fp32 number for each chunk, as many for every tensor as the largest has
    (`native/cuda/ForeachReduceOp.cu`: `output_per_tensor`)."""
    largest = max((prod(tensor.shape) for tensor in operator.inputs), default=0)
    return len(operator.inputs) * ceil(largest / NORM_CHUNK) * FLOAT


def _cudnn_rnn(operator: Operator, target: TraceTarget) -> int:  # noqa: ARG001
    """cuDNN's workspace, about the weights' size, and the sequence turned if the batch is first.

    Two workspaces printed in pytorch/pytorch#2895 are 1.45 times the weights' bytes: 17,730,560
    for 12,160,000 (LSTM, with biases) and 13,169,920 for 9,120,000 (GRU).
    """
    weights = sum(operand.bytes for operand in operator.inputs if len(operand.shape) == 2)
    turned = operator.inputs[0].bytes if operator.attributes.get("batch_first") else 0
    return round(1.45 * weights) + turned


_RULES: dict[str, Callable[[Operator, TraceTarget], int]] = {
    "aten._scaled_dot_product_flash_attention_backward": _flash_backward,
    "aten._scaled_dot_product_cudnn_attention_backward": _cudnn_attention_backward,
    "aten._scaled_dot_product_efficient_attention": _efficient_forward,
    "aten._scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "aten.embedding_dense_backward": _embedding_backward,
    "aten.index_put": _index_put,
    "aten.index_put_": _index_put,
    "aten._index_put_impl_": _index_put,
    "aten._unsafe_index_put": _index_put,
    "aten.sort": _sort,
    "aten._foreach_norm": _foreach_norm,
    "aten._cudnn_rnn": _cudnn_rnn,
    "aten._cudnn_rnn_backward": _cudnn_rnn,
}
