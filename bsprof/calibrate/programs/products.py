"""Matrix products as linear layers and attention run them: forward, and both gradients."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from bsprof.calibrate.programs.program import Builder, Maker, Program, forward


def linear(make: Maker) -> Program:
    """(m, k) by a weight of (n, k), with a bias."""
    x, weight, bias = make.normal(make["m"], make["k"]), _weight(make), make.normal(make["n"])
    return forward(lambda: torch.addmm(bias, x, weight.t()))


def linear_input(make: Maker) -> Program:
    """The gradient of a linear layer's input: (m, n) by (n, k)."""
    gradient, weight = make.normal(make["m"], make["n"]), _weight(make)
    return forward(lambda: torch.mm(gradient, weight))


def linear_weight(make: Maker) -> Program:
    """The gradient of its weight: (n, m) by (m, k)."""
    gradient, x = make.normal(make["m"], make["n"]), make.normal(make["m"], make["k"])
    return forward(lambda: torch.mm(gradient.t(), x))


def batched(make: Maker) -> Program:
    """Scores times values: `batch` products of (m, k) by (k, n)."""
    a = make.normal(make["batch"], make["m"], make["k"])
    b = make.normal(make["batch"], make["k"], make["n"])
    return forward(lambda: torch.bmm(a, b))


def batched_right(make: Maker) -> Program:
    """Queries times keys: `batch` products of (m, k) by (n, k) turned."""
    a = make.normal(make["batch"], make["m"], make["k"])
    b = make.normal(make["batch"], make["n"], make["k"])
    return forward(lambda: torch.bmm(a, b.transpose(1, 2)))


def batched_left(make: Maker) -> Program:
    """Gradients of keys and values: `batch` products of (k, m) turned by (k, n)."""
    a = make.normal(make["batch"], make["k"], make["m"])
    b = make.normal(make["batch"], make["k"], make["n"])
    return forward(lambda: torch.bmm(a.transpose(1, 2), b))


def _weight(make: Maker) -> torch.Tensor:
    return make.normal(make["n"], make["k"])


PROGRAMS: Mapping[str, Builder] = {
    "product.forward": linear,
    "product.input": linear_input,
    "product.weight": linear_weight,
    "batched.plain": batched,
    "batched.right": batched_right,
    "batched.left": batched_left,
}
