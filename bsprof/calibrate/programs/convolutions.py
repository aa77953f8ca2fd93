"""Convolutions of square images, and their two gradients, by layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bsprof.calibrate.programs.program import Builder, Maker, Program, forward

_aten: Any = torch.ops.aten


def _operands(make: Maker) -> tuple[Tensor, Tensor, list[Any]]:
    """Image, weight, and what follows them in a call of `aten.convolution` after the bias.

    Lengths: `batch`, `channels`, `filters`, `side` of the image, `kernel`, `stride` (1),
    `groups` (1), `last` (0): whether channels run last in memory.
    """
    groups, kernel = make.size("groups", 1), make["kernel"]
    side = make["side"]
    x = make.normal(make["batch"], make["channels"], side, side)
    weight = make.normal(make["filters"], make["channels"] // groups, kernel, kernel)
    if make.size("last", 0):
        x = x.to(memory_format=torch.channels_last)
        weight = weight.to(memory_format=torch.channels_last)
    stride = make.size("stride", 1)
    # Kernels that tile the image (patches) are not padded.
    padding = 0 if stride == kernel else kernel // 2
    return x, weight, [[stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups]


def convolution(make: Maker) -> Program:
    """Forward, without a bias."""
    x, weight, rest = _operands(make)
    return forward(lambda: _aten.convolution(x, weight, None, *rest))


def _gradient(make: Maker, mask: list[bool]) -> Program:
    x, weight, rest = _operands(make)
    gradient = torch.randn_like(_aten.convolution(x, weight, None, *rest))
    return forward(lambda: _aten.convolution_backward(gradient, x, weight, None, *rest, mask))


def convolution_input(make: Maker) -> Program:
    """The gradient of the image."""
    return _gradient(make, [True, False, False])


def convolution_weight(make: Maker) -> Program:
    """The gradient of the weight."""
    return _gradient(make, [False, True, False])


PROGRAMS: Mapping[str, Builder] = {
    "convolution.forward": convolution,
    "convolution.input": convolution_input,
    "convolution.weight": convolution_weight,
}
