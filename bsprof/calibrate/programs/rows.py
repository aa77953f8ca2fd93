"""Operators along rows: softmax, normalisation, losses and sums, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bsprof.calibrate.programs.program import Builder, Maker, Program, backward_of, forward

_aten: Any = torch.ops.aten


def _plain(make: Maker) -> Tensor:
    return make.normal(make["rows"], make["columns"])


def softmax(make: Maker) -> Program:
    """Softmax of each row."""
    x = _plain(make)
    return forward(lambda: torch.softmax(x, -1))


def softmax_backward(make: Maker) -> Program:
    """Its gradient."""
    gradient, y = _plain(make), torch.softmax(_plain(make), -1)
    return forward(lambda: _aten._softmax_backward_data(gradient, y, -1, make.dtype))


def log_softmax(make: Maker) -> Program:
    """Logarithm of the softmax of each row."""
    x = _plain(make)
    return forward(lambda: torch.log_softmax(x, -1))


def log_softmax_backward(make: Maker) -> Program:
    """Its gradient."""
    gradient, y = _plain(make), torch.log_softmax(_plain(make), -1)
    return forward(lambda: _aten._log_softmax_backward_data(gradient, y, -1, make.dtype))


def loss(make: Maker) -> Program:
    """Negative log likelihood of one class in each row."""
    x, target = _plain(make), make.indices(make["columns"], make["rows"])
    return forward(lambda: functional.nll_loss(x, target))


def loss_backward(make: Maker) -> Program:
    """Its gradient: a matrix of zeros with one number in each row."""
    x = make.leaf(make["rows"], make["columns"])
    target = make.indices(make["columns"], make["rows"])
    return backward_of(functional.nll_loss(x, target), (x,))


def layer_norm(make: Maker) -> Program:
    """Layer normalisation with weight and bias."""
    width = make["columns"]
    x, weight, bias = _plain(make), make.normal(width), make.normal(width)
    return forward(lambda: torch.layer_norm(x, (width,), weight, bias))


def layer_norm_backward(make: Maker) -> Program:
    """All its gradients."""
    width = make["columns"]
    x, weight, bias = make.leaf(make["rows"], width), make.leaf(width), make.leaf(width)
    return backward_of(torch.layer_norm(x, (width,), weight, bias), (x, weight, bias))


def sum_rows(make: Maker) -> Program:
    """Over all rows: the gradient of a bias."""
    x = _plain(make)
    return forward(lambda: torch.sum(x, 0, keepdim=True))


def sum_columns(make: Maker) -> Program:
    """Of each row."""
    x = _plain(make)
    return forward(lambda: torch.sum(x, -1, keepdim=True))


def sum_all(make: Maker) -> Program:
    """Of everything."""
    x = _plain(make)
    return forward(lambda: torch.sum(x))


def mean_columns(make: Maker) -> Program:
    """The mean of each row."""
    x = _plain(make)
    return forward(lambda: torch.mean(x, -1, keepdim=True))


PROGRAMS: Mapping[str, Builder] = {
    "rows.softmax": softmax,
    "rows.softmax_backward": softmax_backward,
    "rows.log_softmax": log_softmax,
    "rows.log_softmax_backward": log_softmax_backward,
    "rows.loss": loss,
    "rows.loss_backward": loss_backward,
    "rows.layer_norm": layer_norm,
    "rows.layer_norm_backward": layer_norm_backward,
    "rows.sum_rows": sum_rows,
    "rows.sum_columns": sum_columns,
    "rows.sum_all": sum_all,
    "rows.mean_columns": mean_columns,
}
