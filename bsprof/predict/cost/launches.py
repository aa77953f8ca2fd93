"""Kernels that PyTorch launches on CUDA for one operator. Read from `aten/src/ATen/native/`.

One is the rule: an elementwise operator, a copy, a reduction, a product with a bias
(`cuda/Blas.cpp`: cuBLASLt adds it), a softmax (`cuda/SoftMax.cu`), a dropout (`cuda/Dropout.cu`).
Kernels of a library's own (split products, cuDNN's heuristics) are not known and count as one.
"""

from __future__ import annotations

from math import prod

from bsprof.predict.cost.multi_tensor import multi_tensor_launches
from bsprof.predict.stream import Operator

LAUNCHES: dict[str, int] = {
    # cuda/layer_norm_kernel.cu: LayerNormBackwardKernelImplInternal: gradient of the input; of
    # weight and bias, in one.
    "native_layer_norm_backward": 2,
    "_fused_rms_norm_backward": 2,
    # cuda/group_norm_kernel.cu: moments, scale and shift of each channel, the result; backward
    # sums, their combination, the gradient of the input, that of weight and bias.
    "native_group_norm": 3,
    "native_group_norm_backward": 4,
    # cuda/Loss.cu, cuda/NLLLoss2d.cu: zeros, and the entries of the targets.
    "nll_loss_backward": 2,
    "nll_loss2d_backward": 2,
    "nll_loss2d_forward": 2,
    # transformers/cuda/flash_attn/flash_api.cpp, mha_bwd: sums of output and gradient, the pass
    # over keys, the query's gradient from fp32.
    "_scaled_dot_product_flash_attention_backward": 3,
    "_flash_attention_backward": 3,
    "_scaled_dot_product_cudnn_attention_backward": 3,
    # transformers/cuda/attention_backward.cu: sums of output and gradient, the pass.
    "_scaled_dot_product_efficient_attention_backward": 2,
    "_efficient_attention_backward": 2,
    # cuda/Embedding.cu, cuda/EmbeddingBackwardKernel.cu: zeros, copies of indices, a radix sort of
    # several passes, borders of segments, sums of parts, of segments.
    "embedding_dense_backward": 14,
    # cuda/Indexing.cu: linear indices, a radix sort, the sums.
    "index_put": 10,
    "_index_put_impl_": 10,
    "index_put_": 10,
    "_unsafe_index_put": 10,
    # cuda/Sort.cpp, cuda/TensorTopK.cu, cuda/ScanKernels.cpp.
    "sort": 4,
    "topk": 3,
    "cumsum": 2,
    "nonzero": 4,
    "masked_select": 5,
    # cuda/MaxPool2d: `DilatedMaxPool2d.cu` fills the gradient with zeros first.
    "max_pool2d_with_indices_backward": 2,
    "_adaptive_avg_pool2d_backward": 1,
    "upsample_bilinear2d_backward": 2,
    "upsample_nearest2d_backward": 1,
    "upsample_bicubic2d_backward": 2,
    "grid_sampler_2d_backward": 2,
    # Fills on top of what follows: `masked_fill` and `where` out of place copy first.
    "masked_fill": 2,
    "slice_backward": 2,
    "select_backward": 2,
    "scatter": 2,
    "scatter_add": 2,
    "constant_pad_nd": 2,
    # cuda/LossCTC.cu.
    "_ctc_loss": 2,
    "_ctc_loss_backward": 3,
    # Whole encoder layers (`transformers/transformer.cpp`): projections, attention, norms.
    "_native_multi_head_attention": 8,
    "_transformer_encoder_layer_fwd": 14,
    # Both `c2r` and `r2c` of several dimensions make a plan for each; one kernel each at least.
    "_fft_c2r": 2,
}
"""By name without namespace; what is not here is one kernel."""

NATIVE_BATCH_NORM: dict[str, int] = {
    "native_batch_norm": 3,
    "_native_batch_norm_legit": 3,
    "native_batch_norm_backward": 2,
}
"""`cuda/Normalization.cu`: statistics, running ones, the result; backward sums, and elements. For
bfloat16 alone: else cuDNN runs it in one (`Normalization.cpp`, `_select_batch_norm_backend`)."""

IN_PLACE = frozenset(("masked_fill_", "scatter_", "scatter_add_"))
"""Without the copy that comes first out of place."""

SMALL_EMBEDDING = 3072
"""`cuda/Embedding.cu`: so many indices at most are added without sorting: zeros and one kernel."""


def launches_of(operator: Operator) -> int:
    """Kernels of one eager call."""
    name = operator.name.rpartition(".")[2]
    if "lists" in operator.attributes:
        return multi_tensor_launches(operator)
    if name in IN_PLACE:
        return 1
    if name in NATIVE_BATCH_NORM:
        is_native = any(operand.dtype == "bfloat16" for operand in operator.inputs)
        return NATIVE_BATCH_NORM[name] if is_native else 1
    if name == "embedding_dense_backward" and _is_small(operator):
        return 2
    if "index_put" in name and not operator.attributes.get("accumulate"):
        return 1
    return LAUNCHES.get(name, LAUNCHES.get(name.removesuffix("_"), 1))


def _is_small(operator: Operator) -> bool:
    return len(operator.inputs) > 1 and prod(operator.inputs[1].shape) <= SMALL_EMBEDDING
