"""Elementwise operators by name; those that work in place leave numbers of everyday size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from bsprof.calibrate.programs.program import Builder, Maker, Program, forward

_aten: Any = torch.ops.aten

OPERATORS: Mapping[str, tuple[int, Callable[..., object]]] = {
    "add": (2, torch.add),
    "add_": (2, lambda x, y: _aten.add_.Tensor(x, y, alpha=1e-9)),
    "mul": (2, torch.mul),
    "mul_scalar": (1, lambda x: _aten.mul.Scalar(x, 0.5)),
    "mul_": (1, lambda x: _aten.mul_.Scalar(x, 1.0)),
    "div": (1, lambda x: _aten.div.Scalar(x, 3.0)),
    "div_": (1, lambda x: _aten.div_.Scalar(x, 1.0)),
    "sub": (2, torch.sub),
    "neg": (1, torch.neg),
    "relu": (1, torch.relu),
    "relu_backward": (2, lambda g, x: _aten.threshold_backward(g, x, 0.0)),
    "gelu": (1, lambda x: _aten.gelu(x)),
    "gelu_backward": (2, lambda g, x: _aten.gelu_backward(g, x)),
    "gelu_tanh": (1, lambda x: _aten.gelu(x, approximate="tanh")),
    "gelu_tanh_backward": (2, lambda g, x: _aten.gelu_backward(g, x, approximate="tanh")),
    "silu": (1, lambda x: _aten.silu(x)),
    "silu_backward": (2, lambda g, x: _aten.silu_backward(g, x)),
    "sigmoid": (1, torch.sigmoid),
    "sigmoid_backward": (2, lambda g, y: _aten.sigmoid_backward(g, y)),
    "tanh": (1, torch.tanh),
    "tanh_backward": (2, lambda g, y: _aten.tanh_backward(g, y)),
    "hardtanh": (1, lambda x: _aten.hardtanh(x, 0.0, 6.0)),
    "exp": (1, torch.exp),
    "pow": (1, lambda x: _aten.pow.Tensor_Scalar(x, 2)),
    "sqrt": (1, lambda x: _aten.sqrt(x)),
    "rsqrt": (1, torch.rsqrt),
    "lerp_": (2, lambda x, y: _aten.lerp_.Scalar(x, y, 0.1)),
    "addcmul_": (2, lambda x, y: _aten.addcmul_(x, y, y, value=1e-9)),
    "addcdiv_": (3, lambda x, y, z: _aten.addcdiv_(x, y, z, value=1e-9)),
}
"""By name: how many tensors of one size it takes, and the call."""

_OF_POSITIVE = frozenset({"sqrt", "rsqrt", "addcdiv_"})


def pointwise(name: str) -> Builder:
    """The program of one operator on tensors of `rows` by `columns`."""
    count, run = OPERATORS[name]

    def build(make: Maker) -> Program:
        tensors = [_plain(make) for _ in range(count)]
        if name in _OF_POSITIVE:
            tensors = [tensor.abs_().add_(0.5) for tensor in tensors]
        return forward(lambda: run(*tensors))

    return build


def masked_fill(make: Maker) -> Program:
    """Zeros where a mask is set."""
    x, mask = _plain(make), _plain(make) > 0
    return forward(lambda: _aten.masked_fill.Scalar(x, mask, 0.0))


def where(make: Maker) -> Program:
    """One of two tensors, by a mask."""
    x, y, mask = _plain(make), _plain(make), _plain(make) > 0
    return forward(lambda: torch.where(mask, x, y))


def _plain(make: Maker) -> Tensor:
    return make.normal(make["rows"], make["columns"])


PROGRAMS: Mapping[str, Builder] = {
    **{f"pointwise.{name}": pointwise(name) for name in OPERATORS},
    "pointwise.masked_fill": masked_fill,
    "pointwise.where": where,
}
