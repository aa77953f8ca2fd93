"""Matrix products: m, n, k, batch and the type of their multipliers."""

from __future__ import annotations

import pytest
from made_operators import AMPERE, VOLTA, half, operator, tensor, works

from bsprof.accounting.work import WorkClass
from bsprof.records import Precision

CASES = {
    "mm": ([tensor(4, 8), tensor(8, 16)], (4, 16, 8, 1)),
    "addmm": ([tensor(16), tensor(4, 8), tensor(8, 16)], (4, 16, 8, 1)),
    "mv": ([tensor(4, 8), tensor(8)], (4, 1, 8, 1)),
    "dot": ([tensor(8), tensor(8)], (1, 1, 8, 1)),
    "bmm": ([tensor(3, 4, 8), tensor(3, 8, 16)], (4, 16, 8, 3)),
    "baddbmm": ([tensor(3, 4, 16), tensor(3, 4, 8), tensor(3, 8, 16)], (4, 16, 8, 3)),
    "linear": ([tensor(2, 5, 8), tensor(16, 8)], (10, 16, 8, 1)),
}


@pytest.mark.parametrize(("name", "case"), CASES.items())
def test_shape_of_a_product(name, case):
    inputs, (m, n, k, batch) = case
    flops = 2 * m * n * k * batch
    (work,) = works(operator(name, inputs, operator_class="matmul", flops=flops, moved=99))
    assert (work.m, work.n, work.k, work.batch) == (m, n, k, batch)
    assert work.work_class is (WorkClass.BATCHED_MATMUL if batch > 1 else WorkClass.MATMUL)
    assert (work.flops, work.model_flops, work.bytes) == (flops, flops, 99)
    assert (work.launches, work.calls) == (1, 1)


def test_a_product_of_another_form_has_its_flops():
    made = operator("_trilinear", [tensor(6, 8), tensor(6, 5)], operator_class="matmul", flops=960)
    (work,) = works(made)
    assert (work.m, work.n, work.k) == (6, 10, 8)
    assert 2 * work.m * work.n * work.k == work.flops


@pytest.mark.parametrize(
    ("dtype", "precision", "capability", "compute"),
    [
        ("float32", Precision.FP32, AMPERE, "fp32"),
        ("float32", Precision.TF32, AMPERE, "tf32"),
        ("float32", Precision.TF32, VOLTA, "fp32"),
        ("float32", Precision.AMP_BF16, AMPERE, "fp32"),
        ("bfloat16", Precision.AMP_BF16, AMPERE, "bf16"),
        ("float16", Precision.AMP_FP16, VOLTA, "fp16"),
        ("float64", Precision.TF32, AMPERE, "fp64"),
        ("float32", Precision.TF32, None, "fp32"),
    ],
)
def test_products_use_tf32_only_where_it_is_allowed(dtype, precision, capability, compute):
    factors = [tensor(4, 8, dtype=dtype), tensor(8, 16, dtype=dtype)]
    made = operator("mm", factors, operator_class="matmul", flops=1024)
    (work,) = works(made, precision=precision, capability=capability)
    assert work.compute == compute


def test_causal_products_have_fewer_flops_of_the_mathematics():
    made = operator(
        "bmm",
        [half(2, 4, 8), half(2, 8, 4)],
        operator_class="batched_matmul",
        flops=320,
        hardware_flops=512,
    )
    (work,) = works(made)
    assert (work.flops, work.model_flops) == (512, 320)
    assert (work.m, work.n, work.k, work.batch) == (4, 4, 8, 2)
