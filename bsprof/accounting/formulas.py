"""FLOPs of contractions, as small pure functions of shapes. A multiply-add is 2 FLOPs.

Products with padding zeros count, as everywhere in the literature; biases and pointwise work
do not. Every function takes (arguments by schema name, output tensors) and reads shapes only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log2, prod
from typing import Any

from bsprof.accounting.operators import Arguments


def size_of(shape: Iterable[int]) -> int:
    """Elements in a tensor of that shape."""
    return int(prod(shape))


def product_flops(left: Any, right: Any) -> int:
    """FLOPs of (..., m, k) @ (..., k, n) with equal leading sizes, or without any: 2 m k n.

    Of a sparse factor only the stored elements take part.
    """
    if left.is_sparse or left.is_sparse_csr:
        return 2 * int(left._nnz()) * int(right.shape[-1])
    if right.is_sparse or right.is_sparse_csr:
        return 2 * int(left.shape[0]) * int(right._nnz())
    return 2 * size_of(left.shape) * int(right.shape[-1])


def mm_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """`mm`, `bmm`: self @ mat2."""
    return product_flops(arguments["self"], arguments["mat2"])


def addmm_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """`addmm`: mat1 @ mat2; the added matrix is free."""
    return product_flops(arguments["mat1"], arguments["mat2"])


def baddbmm_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """`baddbmm`, `addbmm`: batch1 @ batch2."""
    return product_flops(arguments["batch1"], arguments["batch2"])


def mv_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """`mv`: one multiply-add per element of the matrix."""
    return 2 * size_of(arguments["self"].shape)


def addmv_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """`addmv`: one multiply-add per element of the matrix."""
    return 2 * size_of(arguments["mat"].shape)


def dot_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """`dot`, `vdot`: 2 n."""
    return 2 * size_of(arguments["self"].shape)


def outer_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """`addr`: outer product of two vectors, added."""
    return 2 * size_of(arguments["vec1"].shape) * size_of(arguments["vec2"].shape)


def linear_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """`linear` and its oneDNN forms: input (..., in) by weight (out, in): 2 rows in out.

    The input is `input`, `self` or `X`, the weight `weight` or `W`, by the operator's schema.
    """
    rows_in = next(arguments[name] for name in ("input", "self", "X") if name in arguments)
    weight = arguments["weight"] if "weight" in arguments else arguments["W"]
    return 2 * size_of(rows_in.shape) * int(weight.shape[0])


def linear_backward_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """`linear_backward`: one product for each of the gradients (input, weight) asked for."""
    one = 2 * size_of(arguments["self"].shape) * int(arguments["weight"].shape[0])
    mask = arguments["output_mask"]
    return one * (int(mask[0]) + int(mask[1]))


def trilinear_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """`_trilinear` (nn.Bilinear): 2 x the size of the joint index space of the three factors."""
    shapes = []
    for name, expand in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        shape = list(arguments[name].shape)
        for dim in sorted(arguments[expand]):
            shape.insert(dim, 1)
        shapes.append(shape)
    sizes = [max(per_dim) for per_dim in zip(*shapes, strict=True)]
    return 2 * size_of(sizes)


def distance_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """`_euclidean_dist`: distances by one matrix product of (p, m) and (r, m)."""
    x1, x2 = arguments["x1"].shape, arguments["x2"].shape
    return 2 * size_of(x1) * int(x2[-2])


# --- convolution -----------------------------------------------------------------------------


def convolution_shape_flops(
    data: Sequence[int], weight: Sequence[int], out: Sequence[int], *, transposed: bool
) -> int:
    """One pass of a convolution, any number of dimensions and groups.

    weight is (C_out, C_in / groups, *kernel): each output element takes C_in/groups x kernel
    multiply-adds. Transposed, weight is (C_in, C_out / groups, *kernel) and each *input*
    element is multiplied that often. Groups are thereby in the weight's shape; dilation and
    stride are in the output's.
    """
    per_element = size_of(weight[1:])
    return 2 * size_of(data if transposed else out) * per_element


def convolution_flops(arguments: Arguments, outputs: Sequence[Any]) -> int:
    """`convolution` and its library forms (`mkldnn_convolution`, `cudnn_convolution`, ...)."""
    data = next(arguments[name] for name in ("input", "self", "X") if name in arguments)
    weight = arguments["weight"] if "weight" in arguments else arguments["W"]
    return convolution_shape_flops(
        data.shape,
        weight.shape,
        outputs[0].shape,
        transposed=bool(arguments.get("transposed", False)),
    )


def transposed_convolution_flops(arguments: Arguments, outputs: Sequence[Any]) -> int:
    """Operators that are transposed by name (`cudnn_convolution_transpose`, ...)."""
    data = arguments["self"] if "self" in arguments else arguments["input"]
    return convolution_shape_flops(
        data.shape, arguments["weight"].shape, outputs[0].shape, transposed=True
    )


def convolution_backward_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """`convolution_backward`: the forward count for each gradient of output_mask[:2].

    The data gradient and the weight gradient pair every (input, weight, output) element of the
    forward once more, whatever the groups; the bias gradient is a reduction and free.
    """
    one = convolution_shape_flops(
        arguments["input"].shape,
        arguments["weight"].shape,
        arguments["grad_output"].shape,
        transposed=bool(arguments["transposed"]),
    )
    mask = arguments["output_mask"]
    return one * (int(mask[0]) + int(mask[1]))


# --- attention -------------------------------------------------------------------------------


def attended_pairs(queries: int, keys: int, *, causal: bool) -> int:
    """(query, key) pairs that attention computes: queries x keys, or under a causal mask the
    area of the lower triangle, diagonal included.

    Row i (from 0) sees min(i + 1, keys) keys (the mask of PyTorch is aligned to the top left);
    for S queries and S keys that is S (S + 1) / 2.
    """
    if not causal:
        return queries * keys
    full = min(queries, keys)
    return full * (full + 1) // 2 + (queries - full) * keys


def _attention_parts(arguments: Arguments) -> tuple[int, int, int]:
    """(batch x heads x pairs, size of a query row, size of a value row) of (batch, heads, S, D)."""
    query, key, value = (arguments[name].shape for name in ("query", "key", "value"))
    pairs = attended_pairs(query[-2], key[-2], causal=bool(arguments["is_causal"]))
    return size_of(query[:-2]) * pairs, int(query[-1]), int(value[-1])


def attention_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """Scaled dot-product attention, any fused backend: 2 pairs (D + D_v) per head.

    Causal attention counts the lower triangle only: S (S + 1) / 2 pairs for S tokens. Fewer
    key-value heads than query heads change nothing: every query head attends.
    """
    pairs, query_size, value_size = _attention_parts(arguments)
    return 2 * pairs * (query_size + value_size)


def attention_backward_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """Four products (dV, dP, dQ, dK): twice the forward, on the same pairs."""
    return 2 * attention_flops(arguments, ())


def attention_recomputed_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """Scores that a fused backward computes again instead of having stored: 2 pairs D."""
    pairs, query_size, _value_size = _attention_parts(arguments)
    return 2 * pairs * query_size


def _ragged_parts(arguments: Arguments, causal: bool) -> tuple[int, int, int]:
    """As `_attention_parts` for (batch, S, heads, D), or packed (total, heads, D) with offsets."""
    query, key, value = (arguments[name].shape for name in ("query", "key", "value"))
    heads, query_size, value_size = int(query[-2]), int(query[-1]), int(value[-1])
    for names in (("cum_seq_q", "cum_seq_k"), ("cu_seqlens_q", "cu_seqlens_k")):
        offsets = [arguments[name] for name in names if arguments.get(name) is not None]
        if len(offsets) == 2:
            rows, columns = ([int(n) for n in offset.tolist()] for offset in offsets)
            pairs = sum(
                attended_pairs(rows[i + 1] - rows[i], columns[i + 1] - columns[i], causal=causal)
                for i in range(len(rows) - 1)
            )
            return heads * pairs, query_size, value_size
    pairs = attended_pairs(int(query[-3]), int(key[-3]), causal=causal)
    return size_of(query[:-3]) * heads * pairs, query_size, value_size


def _ragged_is_causal(arguments: Arguments) -> bool:
    # `custom_mask_type` of the efficient kernel: 1 causal from top left, 2 from bottom right.
    return bool(arguments.get("is_causal", False)) or bool(arguments.get("custom_mask_type", 0))


def ragged_attention_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """`_flash_attention_forward`, `_efficient_attention_forward`: 2 pairs (D + D_v) per head."""
    pairs, query_size, value_size = _ragged_parts(arguments, _ragged_is_causal(arguments))
    return 2 * pairs * (query_size + value_size)


def ragged_attention_backward_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """Twice the forward."""
    return 2 * ragged_attention_flops(arguments, ())


def ragged_attention_recomputed_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """Scores computed again in the backward: 2 pairs D."""
    pairs, query_size, _value_size = _ragged_parts(arguments, _ragged_is_causal(arguments))
    return 2 * pairs * query_size


def self_attention_layer_flops(rows: Sequence[int]) -> int:
    """Projections (4 of E x E) and dense attention of a (batch, S, E) input."""
    batch, length, width = (int(n) for n in rows)
    return 8 * batch * length * width * width + 4 * batch * length * length * width


def native_attention_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """`_native_multi_head_attention`, the evaluation path of nn.MultiheadAttention on itself."""
    return self_attention_layer_flops(arguments["query"].shape)


def encoder_layer_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """`_transformer_encoder_layer_fwd`: attention and both feed-forward products."""
    rows = arguments["src"].shape
    feed_forward = size_of(arguments["ffn_weight_1"].shape)
    return self_attention_layer_flops(rows) + 4 * size_of(rows[:-1]) * feed_forward


# --- recurrent layers, transforms ------------------------------------------------------------


def mkldnn_rnn_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """One layer, one direction: both weight matrices applied at every step of every sample.

    input (T, B, I), weight0 (gates H, I), weight1 (gates H, H): 2 T B gates H (I + H).
    """
    steps = size_of(arguments["input"].shape[:-1])
    return 2 * steps * (size_of(arguments["weight0"].shape) + size_of(arguments["weight1"].shape))


def mkldnn_rnn_backward_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """Data and weight gradients of both products: twice the forward."""
    steps = size_of(arguments["input"].shape[:-1])
    weights = size_of(arguments["weight1"].shape) + size_of(arguments["weight2"].shape)
    return 4 * steps * weights


def _cudnn_rnn_pass(arguments: Arguments) -> int:
    steps = size_of(arguments["input"].shape[:-1])
    matrices = sum(
        size_of(weight.shape) for weight in arguments["weight"] if len(weight.shape) == 2
    )
    return 2 * steps * matrices


def cudnn_rnn_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """All layers and directions: every weight matrix at every step of every sample."""
    return _cudnn_rnn_pass(arguments)


def cudnn_rnn_backward_flops(arguments: Arguments, _: Sequence[Any]) -> int:
    """Data gradients always, weight gradients where output_mask[3] asks for them."""
    return _cudnn_rnn_pass(arguments) * (1 + int(arguments["output_mask"][3]))


def fft_flops(arguments: Arguments, outputs: Sequence[Any]) -> int:
    """5 N log2(n) for complex transforms of n points, half of it where one side is real.

    N is the number of points of the larger side (the usual count for FFT, as FFTW reports it).
    """
    data, out = arguments["self"], outputs[0]
    points = size_of(data.shape if size_of(data.shape) >= size_of(out.shape) else out.shape)
    length = size_of(max(int(data.shape[d]), int(out.shape[d])) for d in arguments["dim"])
    both_complex = data.dtype.is_complex and out.dtype.is_complex
    # Rounded for one transform, so that many of them are a multiple.
    one = round((5.0 if both_complex else 2.5) * length * log2(max(length, 2)))
    return one * points // length if length else 0
