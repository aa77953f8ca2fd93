"""Convolutions as products, split by direction, with copies of layouts."""

from __future__ import annotations

import dataclasses

import pytest
from made_operators import AMPERE, VOLTA, half, operator, tensor, works

from bsprof.accounting.work import WorkClass
from bsprof.records import Precision

# 3 x 3, stride 2: 2 samples of 4 x 9 x 9 to 8 x 5 x 5.
IN, WEIGHT, OUT = (2, 4, 9, 9), (8, 4, 3, 3), (2, 8, 5, 5)
FLOPS = 2 * (2 * 5 * 5) * 8 * (4 * 9)


def forward(make=tensor, given=IN, weight=WEIGHT, out=OUT, flops=FLOPS, bias=False, **attributes):
    inputs = [make(*given), make(*weight), *([make(out[1])] if bias else [])]
    attributes = {"stride": "2,2", "groups": 1, **attributes}
    return operator(
        "convolution", inputs, [make(*out)], operator_class="convolution", flops=flops, **attributes
    )


def backward(make=tensor, given=IN, weight=WEIGHT, out=OUT, mask="1,1,0", flops=None, **attributes):
    wanted = [int(part) for part in mask.split(",")]
    made = [make(*given), make(*weight), make(out[1])]
    attributes = {"stride": "2,2", "groups": 1, "output_mask": mask, **attributes}
    return operator(
        "convolution_backward",
        [make(*out), make(*given), make(*weight)],
        [one for one, is_wanted in zip(made, wanted, strict=True) if is_wanted],
        backward=True,
        operator_class="convolution",
        flops=FLOPS * (wanted[0] + wanted[1]) if flops is None else flops,
        **attributes,
    )


def shape(work):
    return work.m, work.n, work.k, work.batch


def bytes_of(*shapes, item=4):
    total = 0
    for one in shapes:
        size = item
        for length in one:
            size *= length
        total += size
    return total


def test_a_forward_pass_is_one_product():
    (work,) = works(forward(), precision=Precision.FP32_STRICT)
    assert work.work_class is WorkClass.CONVOLUTION_FORWARD
    assert shape(work) == (50, 8, 36, 1)
    assert work.flops == FLOPS == 2 * 50 * 8 * 36
    assert (work.kernel_area, work.stride, work.compute) == (9, 2, "fp32")
    assert work.bytes == bytes_of(IN, WEIGHT, OUT)


def test_gradients_are_products_of_their_own():
    data, weight = works(backward(), precision=Precision.FP32_STRICT)
    assert (data.work_class, shape(data)) == (WorkClass.CONVOLUTION_DATA, (50, 36, 8, 1))
    assert (weight.work_class, shape(weight)) == (WorkClass.CONVOLUTION_WEIGHT, (36, 8, 50, 1))
    assert data.flops == weight.flops == FLOPS
    assert (data.calls, weight.calls) == (1, 0)


def test_only_gradients_that_are_asked_for():
    (weight,) = works(backward(mask="0,1,0"), precision=Precision.FP32_STRICT)
    assert weight.work_class is WorkClass.CONVOLUTION_WEIGHT
    assert (weight.flops, weight.calls) == (FLOPS, 1)


def test_a_bias_is_added_after_and_its_gradient_is_a_sum():
    _, added = works(forward(bias=True), precision=Precision.FP32_STRICT)
    assert (added.work_class, added.bytes) == (WorkClass.ELEMENTWISE, 2 * bytes_of(OUT))
    *_, summed = works(backward(mask="1,1,1"), precision=Precision.FP32_STRICT)
    assert (summed.work_class, summed.bytes) == (WorkClass.REDUCTION, bytes_of(OUT))
    assert (added.calls, summed.calls, added.launches, summed.launches) == (0, 0, 1, 1)


def test_groups_are_a_batch():
    flops = FLOPS // 2
    grouped = forward(weight=(8, 2, 3, 3), groups=2, flops=flops)
    (work,) = works(grouped, precision=Precision.FP32_STRICT)
    assert shape(work) == (50, 4, 18, 2)
    assert work.flops == flops == 2 * 50 * 4 * 18 * 2


def test_a_depthwise_one_is_recognised():
    flops = 2 * 2 * 4 * 25 * 9
    made = forward(half, weight=(4, 1, 3, 3), out=(2, 4, 5, 5), groups=4, flops=flops)
    (work,) = works(made)  # no copies of layouts: torch has a kernel for it
    assert (work.k, work.batch) == (work.kernel_area, IN[1])
    assert shape(work) == (50, 1, 9, 4)


def test_a_transposed_one_is_the_gradient_of_an_input():
    # 2 samples of 8 x 5 x 5 to 4 x 9 x 9: every input element is multiplied 4 x 9 times.
    flops = 2 * (2 * 8 * 25) * (4 * 9)
    turned = {"given": OUT, "weight": (8, 4, 3, 3), "out": IN, "transposed": True}
    (work,) = works(forward(flops=flops, **turned), precision=Precision.FP32_STRICT)
    assert (work.work_class, shape(work)) == (WorkClass.CONVOLUTION_DATA, (50, 36, 8, 1))
    assert 2 * work.m * work.n * work.k == flops
    data, weight = works(backward(flops=2 * flops, **turned), precision=Precision.FP32_STRICT)
    assert (data.work_class, shape(data)) == (WorkClass.CONVOLUTION_FORWARD, (50, 8, 36, 1))
    assert (weight.work_class, shape(weight)) == (WorkClass.CONVOLUTION_WEIGHT, (36, 8, 50, 1))
    assert data.flops == weight.flops == flops


def layouts(found):
    return [work for work in found if work.work_class is WorkClass.LAYOUT]


def test_tensor_cores_turn_input_and_output_of_every_kernel():
    found = layouts(works(forward(half)))
    assert [work.bytes for work in found] == [2 * bytes_of(IN, item=2), 2 * bytes_of(OUT, item=2)]
    assert {(work.calls, work.launches, work.flops) for work in found} == {(0, 1, 0)}
    assert len(layouts(works(backward(half)))) == 4
    assert len(layouts(works(backward(half, mask="0,1,0")))) == 2


@pytest.mark.parametrize(
    ("made", "capability", "precision", "count"),
    [
        # Volta's kernels write NCHW themselves.
        (forward(half), VOLTA, Precision.AMP_FP16, 1),
        (backward(half), VOLTA, Precision.AMP_FP16, 3),
        (forward(half), (6, 1), Precision.AMP_FP16, 0),
        (forward(half), None, Precision.AMP_FP16, 0),
        (forward(), AMPERE, Precision.FP32, 2),
        (forward(), AMPERE, Precision.FP32_STRICT, 0),
        (forward(), VOLTA, Precision.FP32, 0),
        # 1 x 1 in 32 bit is a plain product.
        (forward(weight=(8, 4, 1, 1), flops=FLOPS // 9), AMPERE, Precision.FP32, 0),
        (forward(half, weight=(8, 4, 1, 1), flops=FLOPS // 9), AMPERE, Precision.FP32, 2),
        # Inductor lays out with channels last itself, and leaves grouped ones.
        (forward(half, compiled=True), AMPERE, Precision.FP32, 0),
        (forward(half, weight=(8, 2, 3, 3), groups=2, compiled=True), AMPERE, Precision.FP32, 2),
    ],
)
def test_where_layouts_are_copied(made, capability, precision, count):
    assert len(layouts(works(made, capability=capability, precision=precision))) == count


def test_channels_last_needs_no_copies_but_of_what_lies_otherwise():
    def last(*shape):
        return half(*shape, channels_last=len(shape) == 4)

    (work,) = works(forward(last))
    assert work.channels_last
    mixed = operator(
        "convolution",
        [half(*IN), last(*WEIGHT)],
        [last(*OUT)],
        operator_class="convolution",
        flops=FLOPS,
        stride="2,2",
        groups=1,
    )
    product, copied = works(mixed)
    assert product.channels_last
    assert (copied.work_class, copied.bytes) == (WorkClass.LAYOUT, 2 * bytes_of(IN, item=2))
    # Backward it is made once for both gradients.
    again = backward(half)
    inputs = (last(*OUT), half(*IN), last(*WEIGHT))
    assert len(layouts(works(dataclasses.replace(again, inputs=inputs)))) == 1


def test_a_compiled_one_in_32_bit_lays_its_weight_out():
    _, copied = works(forward(compiled=True))
    assert copied.bytes == 2 * bytes_of(WEIGHT)
    assert not layouts(works(backward(compiled=True)))
    (pointwise,) = works(forward(weight=(8, 4, 1, 1), flops=FLOPS // 9, compiled=True))
    assert pointwise.channels_last


@pytest.mark.parametrize(
    ("precision", "capability", "compute"),
    [
        (Precision.FP32, AMPERE, "tf32"),
        (Precision.TF32, AMPERE, "tf32"),
        (Precision.FP32_STRICT, AMPERE, "fp32"),
        (Precision.FP32, VOLTA, "fp32"),
        (Precision.FP32, None, "fp32"),
    ],
)
def test_convolutions_use_tf32_by_default(precision, capability, compute):
    work = works(forward(), precision=precision, capability=capability)[0]
    assert work.compute == compute
