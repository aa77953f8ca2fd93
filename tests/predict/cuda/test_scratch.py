"""Memory inside kernels, by hand from the sizes in torch's sources."""

import pytest

from bsprof.predict.cuda.scratch import kernel_scratch
from bsprof.predict.stream import Operand, Operator
from bsprof.predict.target import TraceTarget

A100, V100 = TraceTarget(), TraceTarget(compute_capability=(7, 0))


def operator(name, inputs, outputs=(), dtype="bfloat16", **attributes):
    def made(value):
        shape, kind = value if isinstance(value[0], tuple) else (value, dtype)
        return Operand(shape=shape, dtype=kind)

    return Operator(
        position=0, name=f"aten.{name}", module=0, phase=None, backward=True,
        inputs=tuple(map(made, inputs)), outputs=tuple(map(made, outputs)), attributes=attributes,
    )  # fmt: skip


FULL, GROUPED = (4, 12, 1000, 64), (4, 3, 1000, 64)
FLASH = "_scaled_dot_product_flash_attention_backward"
EFFICIENT = "_scaled_dot_product_efficient_attention_backward"
ROUNDED = 4 * 12 * 1024  # rows, lengths rounded up to 128


def test_flash_backward_accumulates_in_fp32():
    scratch = kernel_scratch(operator(FLASH, [FULL] * 5), A100)
    assert scratch == ROUNDED * 64 * 4 + ROUNDED * 4


def test_head_sizes_are_rounded_for_flash():
    narrow = (4, 12, 1000, 40)
    assert kernel_scratch(operator(FLASH, [narrow] * 5), A100) == ROUNDED * (64 + 1) * 4


def test_shared_keys_are_expanded_in_the_backward_of_flash():
    scratch = kernel_scratch(operator(FLASH, [FULL, FULL, GROUPED, GROUPED, FULL]), A100)
    assert scratch == ROUNDED * 65 * 4 + 2 * 2 * 4 * 12 * 1000 * 64


def test_cudnn_is_taken_as_flash():
    name = "_scaled_dot_product_cudnn_attention_backward"
    same = kernel_scratch(operator(FLASH, [FULL] * 5), A100)
    assert kernel_scratch(operator(name, [FULL] * 5), A100) == same


@pytest.mark.parametrize(
    ("dtype", "size", "target", "values"),
    [
        ("float32", 64, A100, 1000 * (64 + 1)),  # a product, and one number a row
        ("bfloat16", 64, A100, 1024 * 64 + 1000),
        ("float16", 256, A100, 1024 * 256 + 1000 + 128 * 512),  # dK, dV staged
        ("float16", 96, V100, 3 * 1000 * 96),  # converted first on Volta
    ],
    ids=str,
)
def test_efficient_backward(dtype, size, target, values):
    shape = (4, 12, 1000, size)
    scratch = kernel_scratch(operator(EFFICIENT, [shape] * 4, dtype=dtype), target)
    assert scratch == 4 * 12 * values * 4


@pytest.mark.parametrize(("size", "dtype", "wide"), [(64, "float16", 0), (256, "float16", 1)])
def test_efficient_forward_accumulates_wide_heads_in_fp32(size, dtype, wide):
    shape = (4, 12, 1000, size)
    name = "_scaled_dot_product_efficient_attention"
    scratch = kernel_scratch(operator(name, [shape] * 3, [shape], dtype=dtype), A100)
    assert scratch == wide * 4 * 12 * 1000 * size * 4


@pytest.mark.parametrize(
    ("tokens", "weights", "rows", "indices"),
    [
        (1024, 50_000, 0, 0),  # not sorted
        (8192, 50_000, 819 + 8192, 3 * 8192 + 2 * 8192 + 819 + 8192),
        (8192, 100, 819 + 100, 3 * 8192 + 2 * 100 + 819 + 100),  # ten a part, one rest a segment
    ],
)
def test_embedding_backward_sums_parts_of_segments(tokens, weights, rows, indices):
    inputs = [((8, tokens // 8, 768), "float32"), ((8, tokens // 8), "int64")]
    made = operator("embedding_dense_backward", inputs, [((weights, 768), "float32")])
    assert kernel_scratch(made, A100) == rows * 768 * 4 + indices * 8


def test_embedding_backward_of_narrow_rows_takes_most_while_it_sorts():
    inputs = [((8192, 1), "float32"), ((8192,), "int64")]
    made = operator("embedding_dense_backward", inputs, [((2, 1), "float32")])
    assert kernel_scratch(made, A100) == 4 * 8192 * 8


@pytest.mark.parametrize(
    ("attributes", "bytes_taken"),
    [({"accumulate": True}, 5 * 8 * 2401), ({"accumulate": False}, 0), ({}, 0)],
    ids=str,
)
def test_adding_at_indices_sorts_them(attributes, bytes_taken):
    inputs = [((169, 4), "float32"), ((2401,), "int64"), ((2401, 4), "float32")]
    made = operator("_index_put_impl_", inputs, **attributes)
    assert kernel_scratch(made, A100) == bytes_taken


def test_norms_of_many_tensors_keep_one_number_a_chunk():
    made = operator("_foreach_norm", [(65536 * 10,), (8,)], dtype="float32")
    assert kernel_scratch(made, A100) == 2 * 10 * 4


@pytest.mark.parametrize(("gates", "printed"), [(4, 17_730_560), (3, 13_169_920)])
def test_workspaces_that_cudnn_returned(gates, printed):
    """pytorch/pytorch#2895: 123 features, 320 units, four layers, fp32."""
    weights = [(gates * 320, 123), *[(gates * 320, 320)] * 7]
    made = operator("_cudnn_rnn", [(250, 100, 123), *weights], dtype="float32")
    assert kernel_scratch(made, A100) == pytest.approx(printed, rel=0.02)
    turned = operator("_cudnn_rnn", [(100, 250, 123), *weights], dtype="float32", batch_first=True)
    assert kernel_scratch(turned, A100) - kernel_scratch(made, A100) == 4 * 250 * 100 * 123


def test_sorting_takes_a_second_buffer():
    assert kernel_scratch(operator("sort", [(1000,)], dtype="float32"), A100) == 12_000


@pytest.mark.parametrize("name", ["mul", "native_layer_norm", "nll_loss_backward", "convolution"])
def test_others_take_nothing(name):
    assert kernel_scratch(operator(name, [(1000, 1000)] * 3), A100) == 0
