"""Dropout as CUDA runs it: one kernel, whose mask is one byte an element.

The CPU keeps a mask of the input's type. The in-place form is alike on both: its mask has the
input's type (`_dropout_impl` in `aten/src/ATen/native/Dropout.cpp`).
"""

from __future__ import annotations

import torch

from bsprof.predict.cuda.overrides import Kernel

aten = torch.ops.aten


def dropout(tensor: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """What `aten::dropout` does with a CUDA tensor."""
    if p == 0 or not train or tensor.numel() == 0:
        return tensor
    if p == 1:
        return tensor.mul(torch.zeros((), dtype=tensor.dtype))
    out: torch.Tensor = aten.native_dropout(tensor, p, train)[0]
    return out


KERNELS: dict[str, Kernel] = {"dropout": dropout}
