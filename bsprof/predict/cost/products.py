"""Matrix products."""

from __future__ import annotations

from math import prod

from bsprof.accounting.work import Work, WorkClass
from bsprof.predict.cost.context import Call
from bsprof.predict.stream import Operand

_SECOND = frozenset(("addmm", "_addmm_activation", "baddbmm", "addbmm", "addmv", "_sparse_addmm"))
"""Operators whose first operand is added to the product of the next two."""

_FACTORS_LAST = frozenset(("linear", "mkldnn_linear", "_linear_pointwise"))
"""Operators whose second factor is (n, k)."""


def product(call: Call) -> tuple[Work, ...]:
    """A product of any kind: its m, n and k by its operands; where those do not tell, by FLOPs."""
    operator = call.operator
    name = operator.name.rpartition(".")[2].removesuffix("_")
    start = 1 if name in _SECOND else 0
    factors = operator.inputs[start : start + 2]
    shape = _shape(factors[0], factors[1], name in _FACTORS_LAST) if len(factors) == 2 else None
    flops = call.hardware_flops
    if shape is None or 2 * prod(shape) != flops:
        shape = _by_flops(operator.inputs[0] if operator.inputs else None, flops)
    m, n, k, batch = shape
    return (
        call.work(
            WorkClass.MATMUL if batch == 1 else WorkClass.BATCHED_MATMUL,
            compute=call.multipliers.product(factors[0]) if factors else "fp32",
            m=m,
            n=n,
            k=k,
            batch=batch,
        ),
    )


def _shape(left: Operand, right: Operand, turned: bool) -> tuple[int, int, int, int] | None:
    """m, n, k, batch of (..., m, k) by (..., k, n)."""
    a, b = left.shape, right.shape
    if turned:
        return prod(a[:-1]), b[0], a[-1], 1
    if len(a) == 3 and len(b) == 3:
        return a[1], b[2], a[2], a[0]
    if len(a) == 2 and len(b) == 2:
        return a[0], b[1], a[1], 1
    if len(a) == 2 and len(b) == 1:
        return a[0], 1, a[1], 1
    if len(a) == 1 and len(b) == 1:
        return 1, 1, a[0], 1
    return None


def _by_flops(first: Operand | None, flops: int) -> tuple[int, int, int, int]:
    """Rows of the first operand against as many columns as make up the FLOPs."""
    if first is None or not first.shape or not prod(first.shape):
        return 1, max(1, flops // 2), 1, 1
    k = first.shape[-1]
    m = prod(first.shape[:-1])
    return m, max(1, flops // (2 * m * k)), k, 1
