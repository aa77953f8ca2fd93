"""Attention in one kernel, by implementation."""

from __future__ import annotations

from math import prod

from bsprof.accounting.work import Work, WorkClass
from bsprof.predict.cost.context import Call

_IMPLEMENTATIONS = ("flash", "efficient", "cudnn")
_RAGGED = frozenset(
    (
        "_flash_attention_forward",
        "_flash_attention_backward",
        "_efficient_attention_forward",
        "_efficient_attention_backward",
    )
)
"""Operators on (batch, length, heads, size), or on samples packed behind each other."""


def attention(call: Call) -> tuple[Work, ...]:
    """One pass over all heads of all samples: they are the batch."""
    operator = call.operator
    name = operator.name.rpartition(".")[2]
    is_backward = name.endswith("_backward")
    kind = WorkClass.ATTENTION_BACKWARD if is_backward else WorkClass.ATTENTION_FORWARD
    start = 1 if is_backward else 0
    if len(operator.inputs) < start + 2 or name.startswith(("_native", "_transformer")):
        return (call.work(kind, implementation="math"),)
    query, key = operator.inputs[start], operator.inputs[start + 1]
    if name in _RAGGED:
        *samples, queries, heads, size = query.shape
        keys, batch = key.shape[-3], prod(samples) * heads
    else:
        *samples, queries, size = query.shape
        keys, batch = key.shape[-2], prod(samples)
    causal = operator.attributes.get("is_causal") or operator.attributes.get("custom_mask_type")
    return (
        call.work(
            kind,
            compute=call.multipliers.product(query),
            m=queries,
            n=keys,
            k=size,
            batch=batch,
            implementation=next((i for i in _IMPLEMENTATIONS if i in name), "math"),
            causal=bool(causal),
        ),
    )
