"""Fused kernels of compiled code: which run as one, and what they read and write."""

from __future__ import annotations

from made_operators import operator, tensor, works

from bsprof.accounting.work import WorkClass
from bsprof.predict.cost.multipliers import Multipliers
from bsprof.predict.cost.works import Costs
from bsprof.records import Precision

ROWS, COLUMNS = 40, 32
FULL, ROW = ROWS * COLUMNS * 4, ROWS * 4


def full(block):
    return tensor(ROWS, COLUMNS, block=block)


def row(block):
    return tensor(ROWS, 1, block=block)


def fused(name, inputs, outputs, *, count=2, **fields):
    return operator(name, inputs, outputs, operator_class="fused", fused=count, **fields)


def statistics(reads, mean, deviation, **fields):
    return fused("var_mean", [full(reads)], [row(mean), row(deviation)], reduction=True, **fields)


def product(position=0):
    return operator(
        "mm", [full(1), full(2)], [full(3)], position=position, operator_class="matmul", flops=9
    )


def test_a_layer_norm_reads_its_rows_once():
    norm = fused("mul", [full(0), row(1), row(2), tensor(COLUMNS, block=3)], [full(4)])
    (work,) = works(statistics(0, 1, 2), norm)
    assert work.work_class is WorkClass.FUSED
    # Rows and the weight read; the result and both statistics written.
    assert work.bytes == 2 * FULL + COLUMNS * 4 + 2 * ROW
    assert (work.launches, work.calls) == (1, 0)
    assert (work.rows, work.columns) == (ROWS, COLUMNS)


def test_sums_along_rows_and_along_columns_are_two_kernels():
    along_columns = fused("sum", [full(0)], [tensor(1, COLUMNS, block=5)], reduction=True)
    found = works(statistics(0, 1, 2), along_columns)
    assert sorted(work.bytes for work in found) == [FULL + COLUMNS * 4, FULL + 2 * ROW]


def test_an_elementwise_kernel_joins_the_sums_that_it_needs():
    sums = fused("sum", [full(0), full(9)], [row(1)], reduction=True)
    along_columns = fused("sum", [full(0)], [tensor(1, COLUMNS, block=5)], reduction=True)
    gradient = fused("mul", [full(0), full(9), row(1)], [full(2)])
    found = works(sums, along_columns, gradient)
    assert sorted(work.bytes for work in found) == [FULL + COLUMNS * 4, 3 * FULL + ROW]


def test_kernels_that_share_nothing_stay_apart():
    assert len(works(fused("mul", [full(0)], [full(1)]), fused("mul", [full(2)], [full(3)]))) == 2


def test_kernels_over_other_sizes_stay_apart():
    small = fused("add", [tensor(8, block=0)], [tensor(8, block=1)])
    assert len(works(fused("mul", [full(0)], [full(2)]), small)) == 2


def test_a_kernel_of_a_library_s_stands_between():
    before, after = fused("mul", [full(1)], [full(2)]), fused("add", [full(2)], [full(4)])
    assert len(works(before, after)) == 1
    assert [w.work_class for w in works(before, product(), after)] == [
        WorkClass.FUSED,
        WorkClass.MATMUL,
        WorkClass.FUSED,
    ]


def costs(operators, events):
    multipliers = Multipliers(compute_capability=(8, 0), precision=Precision.FP32)
    return [work for _, made in Costs(multipliers, events).of(operators) for work in made]


def test_what_is_dropped_within_a_kernel_is_not_written():
    # Storage 1 is made by the first (event 0), read by the second (event 1 makes 2), and dropped.
    first = fused("mul", [full(0)], [full(1)], position=1)
    second = fused("sum", [full(0), full(1)], [row(2)], position=2, reduction=True)
    (work,) = costs([first, second], [2, 3, -2])
    assert work.bytes == FULL + ROW
    (kept,) = costs([first, second], [2, 3])
    assert kept.bytes == 2 * FULL + ROW


def test_what_a_product_still_reads_is_written():
    first = fused("mul", [full(0)], [full(1)], position=1)
    joined = fused("add", [full(0), full(1)], [full(2)], position=2)
    used = product(position=3)  # reads 1 and 2, makes 3 at event 2; then 1 is dropped
    fused_work, _ = costs([first, joined, used], [2, 3, 4, -2])
    assert fused_work.bytes == 3 * FULL


def test_parts_of_a_buffer_are_read_in_part():
    rows = 3
    table = tensor(1000, COLUMNS, block=0)
    read = rows * COLUMNS * 4
    made = fused("add", [table], [tensor(rows, COLUMNS, block=1)], reads=str(read))
    (work,) = works(made)
    assert work.bytes == 2 * read


def test_two_parts_of_a_buffer_are_read_once_each():
    whole = tensor(ROWS, 3 * COLUMNS, block=0)
    first = fused("clone", [whole], [full(1)], reads=str(FULL))
    second = fused("clone", [whole], [full(2)], reads=str(FULL))
    (work,) = works(first, second)
    assert work.bytes == 4 * FULL


def test_recomputation_is_told_where_products_stand_alone_between_fused_kernels():
    again = operator(
        "mm", [full(1), full(2)], operator_class="matmul", flops=9, backward=True, recomputed=True
    )
    gradient = operator("mm", [full(1), full(2)], operator_class="matmul", flops=9, backward=True)
    between = fused("mul", [full(0)], [full(1)], backward=True)
    found = works(again, between, gradient)
    assert [work.model_flops for work in found if work.flops] == [0, 9]
    # Gradients recorded in all of a backward pass: it is to be differentiated itself.
    (work,) = works(again)
    assert work.model_flops == 9
