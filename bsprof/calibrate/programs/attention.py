"""Fused attention as this torch runs it on this device, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bsprof.calibrate.programs.program import Builder, Maker, Program, backward_of, forward


def _operand(make: Maker, *, leaf: bool) -> Tensor:
    """Heads cut from a projection: (batch, heads, length, head) seen in (batch, length, ...)."""
    shape = make["batch"], make["length"], make["heads"], make["head"]
    return (make.leaf(*shape) if leaf else make.normal(*shape)).transpose(1, 2)


def attention(make: Maker) -> Program:
    """Forward; lengths: `batch`, `heads`, `length`, `head`, `causal`."""
    q, k, v = (_operand(make, leaf=False) for _ in range(3))
    causal = bool(make["causal"])
    return forward(lambda: scaled_dot_product_attention(q, k, v, is_causal=causal))


def attention_backward(make: Maker) -> Program:
    """Gradients of queries, keys and values."""
    q, k, v = (_operand(make, leaf=True) for _ in range(3))
    output = scaled_dot_product_attention(q, k, v, is_causal=bool(make["causal"]))
    return backward_of(output, (q, k, v))


PROGRAMS: Mapping[str, Builder] = {
    "attention.forward": attention,
    "attention.backward": attention_backward,
}
