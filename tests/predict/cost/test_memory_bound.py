"""Operators that take as long as their bytes, recurrent layers and transforms."""

from __future__ import annotations

import pytest
from made_operators import half, operator, tensor, works

from bsprof.accounting.work import WorkClass


def one(name, inputs, outputs=(), **fields):
    (work,) = works(operator(name, inputs, outputs, **fields))
    return work


def test_a_layer_norm_has_a_row_for_each_vector():
    x = half(4, 10, 32)
    work = one(
        "native_layer_norm",
        [x, tensor(32), tensor(32)],
        [x],
        operator_class="normalisation",
        normalized_shape="32",
        moved=7,
    )
    assert work.work_class is WorkClass.NORMALISATION
    assert (work.rows, work.columns, work.compute, work.bytes) == (40, 32, "fp16", 7)


def test_a_batch_norm_has_a_row_for_each_channel():
    x = half(4, 6, 5, 5)
    work = one("native_batch_norm_backward", [x, x, tensor(6)], [x], operator_class="normalisation")
    assert work.work_class is WorkClass.NORMALISATION_BACKWARD
    assert (work.rows, work.columns) == (6, 100)


def test_a_group_norm_has_a_row_for_each_group():
    x = tensor(4, 6, 5, 5)
    fields = {"operator_class": "normalisation", "N": 4, "C": 6, "HxW": 25, "group": 2}
    work = one("native_group_norm", [x, tensor(6)], [x], **fields)
    assert (work.rows, work.columns, work.launches) == (8, 75, 3)


def test_softmax_runs_along_its_dimension():
    x = tensor(4, 6, 10)
    assert one("_softmax", [x], [x], operator_class="softmax", dim=-1).columns == 10
    work = one("_softmax", [x], [x], operator_class="softmax", dim=1)
    assert (work.rows, work.columns) == (40, 6)


def test_a_loss_has_a_row_for_each_token():
    logits, target = tensor(40, 100), tensor(40, dtype="int64")
    work = one("nll_loss_forward", [logits, target], [tensor()], operator_class="loss", moved=9)
    assert (work.work_class, work.rows, work.columns) == (WorkClass.LOSS, 40, 100)


def test_a_sum_says_how_many_results_it_has():
    work = one("sum", [tensor(40, 100)], [tensor(1, 100)], operator_class="reduction")
    assert (work.work_class, work.rows, work.columns) == (WorkClass.REDUCTION, 100, 40)


@pytest.mark.parametrize(("count", "launches"), [(3072, 2), (3073, 14)])
def test_the_gradient_of_a_table_is_filled_and_added_to(count, launches):
    grad, table = tensor(count, 16), tensor(500, 16)
    indices = tensor(count, dtype="int64")
    # The rule of the table: gradient and indices read, the table's gradient written.
    moved = grad.bytes + indices.bytes + table.bytes
    work = one(
        "embedding_dense_backward",
        [grad, indices],
        [table],
        backward=True,
        operator_class="embedding",
        moved=moved,
    )
    assert work.work_class is WorkClass.EMBEDDING_BACKWARD
    assert work.bytes == moved + grad.bytes  # looked-up rows are written on top of the zeros
    assert (work.rows, work.columns, work.launches) == (count, 16, launches)


def test_an_unknown_operator_moves_its_operands():
    work = one("something", [tensor(8)], [tensor(4)])
    assert (work.work_class, work.bytes) == (WorkClass.OTHER, 48)


def test_a_recurrent_layer_is_a_product_for_each_step():
    # LSTM, two layers, units 16, input 8, 5 steps of 3 samples.
    given = tensor(5, 3, 8)
    weights = [tensor(64, 8), tensor(64, 16), tensor(64), tensor(64)]
    weights += [tensor(64, 16), tensor(64, 16), tensor(64), tensor(64)]
    fields = {"hidden_size": 16, "num_layers": 2, "batch_first": False, "bidirectional": False}
    work = one("_cudnn_rnn", [given, *weights], operator_class="rnn", flops=9, **fields)
    assert (work.work_class, work.compute) == (WorkClass.RNN, "tf32")
    assert (work.m, work.n, work.k, work.batch) == (3, 64, 16, 10)
    assert work.launches == 2 * (5 + 1)
    turned = one(
        "_cudnn_rnn",
        [tensor(3, 5, 8), *weights],
        operator_class="rnn",
        flops=9,
        **{**fields, "batch_first": True},
    )
    assert (turned.m, turned.batch) == (3, 10)


def test_a_transform_has_a_row_for_each():
    work = one("_fft_r2c", [tensor(6, 16)], [tensor(6, 9)], operator_class="fft", flops=3)
    assert (work.work_class, work.rows, work.columns) == (WorkClass.FFT, 6, 16)


def test_half_a_batch_norm_is_cudnn_s_and_bfloat16_is_not():
    def made(dtype):
        x = tensor(4, 6, 5, 5, dtype=dtype)
        return one("native_batch_norm", [x], [x], operator_class="normalisation").launches

    assert (made("float16"), made("float32"), made("bfloat16")) == (1, 1, 3)


def test_copies_in_place_are_one_kernel_and_out_of_place_two():
    x = tensor(8)
    assert one("masked_fill", [x, x], [x], operator_class="elementwise").launches == 2
    assert one("masked_fill_", [x, x], [x], operator_class="elementwise").launches == 1
    assert one("index_put", [x, x], [x], operator_class="index").launches == 1
    added = one("index_put", [x, x], [x], operator_class="index", accumulate=True)
    assert added.launches == 10
