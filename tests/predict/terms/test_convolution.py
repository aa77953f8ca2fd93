"""Workspaces of convolutions by shape, type, layout and multiplier."""

from __future__ import annotations

import dataclasses

import pytest
from made_runs import device, operator, stream, tensor

from bsprof.predict.target import Software
from bsprof.predict.terms import NOMINAL, SMALLEST, VARIANTS, library_insertions, terms_of
from bsprof.predict.terms.convolution import Units, Workspaces, workspaces
from bsprof.predict.terms.libraries import CONVOLUTION_NAME, TUNING_NAME
from bsprof.records import Category, Precision

AMPERE = Units(half=True, tf32=True)
VOLTA = Units(half=True, tf32=False)
PASCAL = Units(half=False, tf32=False)

IN, OUT, WEIGHT = (8, 64, 32, 32), (8, 128, 32, 32), (128, 64, 3, 3)
MOVED = 4 * (8 * 64 * 32 * 32 + 8 * 128 * 32 * 32)
WEIGHT_BYTES = 4 * 128 * 64 * 9


def operand_options(attributes):
    return {name: attributes.pop(name) for name in ("dtype", "channels_last") if name in attributes}


def forward(given=IN, weight=WEIGHT, output=OUT, **attributes):
    options = {
        name: attributes.pop(name) for name in ("dtype", "channels_last") if name in attributes
    }
    return operator(
        "aten.convolution",
        3,
        inputs=[tensor(*given, **options), tensor(*weight, **options)],
        outputs=[tensor(*output, block=2, **options)],
        **attributes,
    )


def backward(given=IN, weight=WEIGHT, output=OUT, wanted=("input", "weight"), **attributes):
    options = {
        name: attributes.pop(name) for name in ("dtype", "channels_last") if name in attributes
    }
    made = {
        "input": tensor(*given, block=0, **options),
        "weight": tensor(*weight, block=1, **options),
    }
    return operator(
        "aten.convolution_backward",
        2,
        inputs=[tensor(*shape, **options) for shape in (output, given, weight)],
        outputs=[made[name] for name in wanted],
        backward=True,
        **attributes,
    )


def test_a_dense_32_bit_convolution():
    assert workspaces(forward(), AMPERE, NOMINAL) == Workspaces()
    assert workspaces(backward(), AMPERE, NOMINAL) == Workspaces(
        data=round(1.5 * MOVED) + WEIGHT_BYTES, weight=round(1.5 * MOVED) + WEIGHT_BYTES
    )


def test_a_grouped_one_moves_as_much():
    weight = (128, 16, 3, 3)
    needs = workspaces(backward(weight=weight, groups=4), AMPERE, NOMINAL)
    assert needs.data == round(1.5 * MOVED) + WEIGHT_BYTES // 4


def test_without_tf32_a_share_of_it():
    assert workspaces(backward(), VOLTA, NOMINAL) == Workspaces()
    half = dataclasses.replace(NOMINAL, plain_share=0.5)
    nominal, plain = (workspaces(backward(), units, half) for units in (AMPERE, VOLTA))
    assert (plain.data, plain.weight) == (nominal.data // 2, nominal.weight // 2)


def test_what_is_not_computed_needs_nothing():
    needs = workspaces(backward(wanted=("weight",)), AMPERE, NOMINAL)
    assert needs == Workspaces(weight=round(1.5 * MOVED) + WEIGHT_BYTES)


@pytest.mark.parametrize(
    "changes",
    [
        {"weight": (128, 64, 1, 1)},
        {"weight": (128, 1, 3, 3), "groups": 64},
        {"channels_last": True},
        {"weight": (128, 1, 3, 3), "groups": 64, "dtype": "float16"},
        {"channels_last": True, "dtype": "bfloat16"},
    ],
    ids=str,
)
def test_what_works_in_place(changes):
    assert workspaces(backward(**changes), AMPERE, NOMINAL) == Workspaces()


@pytest.mark.parametrize("weight", [(128, 64, 3, 3), (128, 64, 1, 1)])
def test_16_bit_in_nchw_is_copied_for_tensor_cores(weight):
    size = MOVED // 2 + 2 * weight[0] * weight[1] * weight[2] * weight[3]
    assert workspaces(forward(weight=weight, dtype="float16"), VOLTA, NOMINAL).forward == size
    needs = workspaces(backward(weight=weight, dtype="float16"), VOLTA, NOMINAL)
    assert needs == Workspaces(data=size, weight=size)


def test_a_transposed_one_is_the_gradient_of_another():
    given, output = OUT, IN
    ahead = forward(given, WEIGHT, output, transposed=True)
    behind = backward(given, WEIGHT, output, transposed=True)
    assert workspaces(ahead, AMPERE, NOMINAL).forward == round(1.5 * MOVED) + WEIGHT_BYTES
    assert workspaces(behind, AMPERE, NOMINAL) == Workspaces(
        weight=round(1.5 * MOVED) + WEIGHT_BYTES
    )


def test_the_smallest_plans_need_nothing():
    assert workspaces(backward(dtype="float16"), AMPERE, SMALLEST) == Workspaces()


def test_multipliers_follow_device_and_precision():
    assert Units.of((8, 6), Precision.FP32) == AMPERE
    assert Units.of((8, 6), Precision.FP32_STRICT) == VOLTA
    assert Units.of((7, 5), Precision.FP32) == VOLTA
    assert Units.of((6, 1), Precision.AMP_FP16) == PASCAL
    assert Units.of(None, Precision.FP32) == PASCAL


def test_other_operators_have_none():
    assert workspaces(operator("aten.mm", 0), AMPERE, NOMINAL) == Workspaces()


def run(*operators):
    return stream(operators, [(512, None, 0)] * 3)


def test_the_gradient_of_the_input_is_done_before_that_of_the_weight_is_allocated():
    found = library_insertions(run(backward()), device(), Software())
    assert [(i.position, i.until, i.bytes) for i in found] == [
        (1, 1, round(1.5 * MOVED) + WEIGHT_BYTES),
        (2, 2, round(1.5 * MOVED) + WEIGHT_BYTES),
    ]


def test_autotuning_counts_once_per_shape():
    twice = run(forward(), forward(), forward(stride="2,2"))
    found = library_insertions(twice, device(), Software(), cudnn_benchmark=True)
    assert [insertion.name for insertion in found] == [TUNING_NAME] * 2
    assert library_insertions(twice, device(), Software()) == []


def test_terms_of_what_is_taken_at_one_time():
    matmul = [operator("aten.mm", 3, backward=back) for back in (False, True)]
    found = library_insertions(run(*matmul, backward()), device(), Software())
    terms = {term.name: term.bytes.value for term in terms_of(found)}
    assert terms == {
        CONVOLUTION_NAME: round(1.5 * MOVED) + WEIGHT_BYTES,
        "cuBLAS workspace": 2 * 8_519_680,
    }
    assert all(term.source for term in terms_of(found))


def test_what_kernels_take_inside_themselves_is_a_temporary():
    sorting = operator("aten.sort", 3, inputs=[tensor(1000)], outputs=[tensor(1000)] * 2)
    (found,) = library_insertions(run(sorting), device(), Software())
    assert (found.name, found.category) == ("kernel scratch", Category.TEMPORARIES)
    assert (found.position, found.until) == (3, 3)
    assert found.bytes == 12_000  # a second buffer of keys and of indices
    none = dataclasses.replace(NOMINAL, scratch=0.0)
    assert library_insertions(run(sorting), device(), Software(), none) == []


def test_terms_span_the_variants():
    made = run(backward())
    found = [library_insertions(made, device(), Software(), variant) for variant in VARIANTS]
    (term,) = terms_of(found[0], found[1:])
    assert term.bytes.low == 0
    assert term.bytes.value == round(1.5 * MOVED) + WEIGHT_BYTES
    assert term.bytes.high == 2 * MOVED + WEIGHT_BYTES


def test_variants_have_names_of_their_own_and_the_nominal_one_comes_first():
    assert VARIANTS[0] is NOMINAL
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)
    unnamed = [dataclasses.replace(variant, name="") for variant in VARIANTS]
    assert len(set(unnamed)) == len(VARIANTS)


def mixed(name, *, given_last, output_last, weight_last=True, given=IN, output=OUT):
    """A convolution whose operands lie differently."""
    tensors = {
        "input": tensor(*given, channels_last=given_last, block=0),
        "weight": tensor(*WEIGHT, channels_last=weight_last, block=1),
        "output": tensor(*output, channels_last=output_last, block=2),
    }
    forward_pass = name == "aten.convolution"
    inputs = ("input", "weight") if forward_pass else ("output", "input", "weight")
    return operator(
        name,
        3,
        inputs=[tensors[key] for key in inputs],
        outputs=[tensors["output"]] if forward_pass else [tensors["input"], tensors["weight"]],
        backward=not forward_pass,
    )


def test_an_input_that_lies_otherwise_than_the_weight_is_copied():
    one = mixed("aten.convolution", given_last=False, output_last=True)
    assert workspaces(one, AMPERE, NOMINAL).forward == 4 * 8 * 64 * 32 * 32
    assert workspaces(one, AMPERE, SMALLEST).forward == 4 * 8 * 64 * 32 * 32


def test_both_are_copied_in_the_backward_pass():
    one = mixed("aten.convolution_backward", given_last=False, output_last=False)
    assert workspaces(one, AMPERE, NOMINAL) == Workspaces(data=MOVED, weight=MOVED)


def test_nothing_is_copied_where_all_lie_alike():
    one = mixed("aten.convolution_backward", given_last=True, output_last=True)
    assert workspaces(one, AMPERE, NOMINAL) == Workspaces()


def test_a_single_pixel_lies_both_ways():
    one = mixed("aten.convolution", given_last=False, output_last=True, given=(8, 64, 1, 1))
    assert workspaces(one, AMPERE, NOMINAL).forward == 0
