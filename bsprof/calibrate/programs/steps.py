"""Optimizer steps over `tensors` parameters of `elements` each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor
from torch.optim import SGD, AdamW, Optimizer

from bsprof.calibrate.programs.program import Builder, Maker, Program, forward


def _step(make: Maker, of: Callable[[Iterable[Tensor]], Optimizer]) -> Program:
    parameters = [make.leaf(make["elements"]) for _ in range(make["tensors"])]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = of(parameters)
    optimizer.step()  # state is made in the first one
    return forward(optimizer.step)


def _adamw(*, foreach: bool | None = None, fused: bool | None = None) -> Builder:
    return lambda make: _step(make, lambda p: AdamW(p, lr=1e-6, foreach=foreach, fused=fused))


PROGRAMS: Mapping[str, Builder] = {
    "step.adamw": _adamw(),
    "step.adamw_loop": _adamw(foreach=False),
    "step.adamw_foreach": _adamw(foreach=True),
    "step.adamw_fused": _adamw(fused=True),
    "step.sgd": lambda make: _step(make, lambda p: SGD(p, lr=1e-6, momentum=0.9)),
}
