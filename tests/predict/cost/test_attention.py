"""Attention in one kernel: shapes, implementation, FLOPs with what is computed again."""

from __future__ import annotations

import pytest
from made_operators import half, operator, tensor, works

from bsprof.accounting.work import WorkClass


@pytest.mark.parametrize(
    ("name", "implementation"),
    [
        ("_scaled_dot_product_flash_attention", "flash"),
        ("_scaled_dot_product_efficient_attention", "efficient"),
        ("_scaled_dot_product_cudnn_attention", "cudnn"),
        ("_scaled_dot_product_flash_attention_for_cpu", "flash"),
    ],
)
def test_heads_are_part_of_the_batch(name, implementation):
    query, key = half(2, 12, 10, 64), half(2, 12, 7, 64)
    made = operator(name, [query, key, key], operator_class="attention", is_causal=True, flops=5)
    (work,) = works(made)
    assert work.work_class is WorkClass.ATTENTION_FORWARD
    assert (work.m, work.n, work.k, work.batch) == (10, 7, 64, 24)
    assert (work.implementation, work.causal, work.compute) == (implementation, True, "fp16")


def test_a_backward_pass_computes_scores_again():
    grad = half(2, 12, 10, 64)
    made = operator(
        "_scaled_dot_product_flash_attention_backward",
        [grad, grad, grad, grad],
        backward=True,
        operator_class="attention",
        is_causal=False,
        flops=8,
        hardware_flops=10,
    )
    (work,) = works(made)
    assert work.work_class is WorkClass.ATTENTION_BACKWARD
    assert (work.flops, work.model_flops, work.launches) == (10, 8, 3)
    assert (work.m, work.n, work.batch, work.causal) == (10, 10, 24, False)


def test_packed_samples_have_their_heads_behind_their_length():
    query = tensor(2, 10, 12, 64, dtype="bfloat16")
    made = operator("_flash_attention_forward", [query] * 3, operator_class="attention", flops=5)
    (work,) = works(made)
    assert (work.m, work.n, work.k, work.batch) == (10, 10, 64, 24)
