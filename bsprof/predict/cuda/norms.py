"""Normalisation as CUDA runs it, where the CPU keeps other tensors.

- RMS norm is one kernel that keeps its input and one number a row; the CPU writes it out. CUDA
  has it since torch 2.9; `channels_last` inputs are written out there too
  (`rms_norm_symint` in `aten/src/ATen/native/layer_norm.cpp`).
- Group norm copies an input in `channels_last`, which the CPU's kernel takes as it is
  (`aten/src/ATen/native/group_norm.cpp`).
- Batch norm needs nothing here: cuDNN's keeps a mean and a variance of
  each channel, as the CPU's does. Its reserve space, which a trace does not show, is taken as
  empty (unverified; it holds the mask of an activation fused into it, which torch never asks for).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from bsprof.predict.cuda.overrides import Kernel, known
from bsprof.predict.target import Software

aten = torch.ops.aten

FUSED_RMS_NORM_SINCE = (2, 9)


def channels_last(tensor: torch.Tensor) -> bool:
    """Whether its memory runs over channels first, and not also over rows."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    wanted = formats.get(tensor.dim())
    return (
        wanted is not None
        and tensor.is_contiguous(memory_format=wanted)
        and not tensor.is_contiguous()
    )


def _rms_norm(
    input: torch.Tensor,  # noqa: A002 - the operator's own names
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    if channels_last(input) or input.is_complex():
        return _written_out(input, normalized_shape, weight, eps)
    out: torch.Tensor = aten._fused_rms_norm(input, normalized_shape, weight, eps)[0]
    return out


def _written_out(
    input: torch.Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    eps: float | None,
) -> torch.Tensor:
    wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    axes = list(range(-len(normalized_shape), 0))
    eps = torch.finfo(wide.dtype).eps if eps is None else eps
    scaled = wide.mul(wide.pow(2).mean(dim=axes, keepdim=True).add_(eps).rsqrt())
    return (scaled if weight is None else scaled.mul(weight)).type_as(input)


def _group_norm(
    input: torch.Tensor,  # noqa: A002
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,  # noqa: ARG001
) -> torch.Tensor:
    samples, channels = input.shape[0], input.shape[1]
    if channels % num_groups:
        raise RuntimeError(f"{channels} channels do not divide into {num_groups} groups")
    positions = prod(input.shape[2:])
    out: torch.Tensor = aten.native_group_norm(
        input.contiguous(), weight, bias, samples, channels, positions, num_groups, eps
    )[0]
    return out


def _never(*args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
    raise AssertionError("fake tensors never reach a kernel of the CPU")


def composite_kernels(software: Software) -> dict[str, Kernel]:
    """For operators that are made of others."""
    table: dict[str, Kernel] = {"group_norm": _group_norm}
    if fused_rms_norm_exists(software):
        table["rms_norm"] = _rms_norm
    return table


def cpu_kernels(software: Software) -> dict[str, Kernel]:
    """A kernel of the CPU for the fused RMS norm: without one torch writes it out again."""
    return {"_fused_rms_norm": _never} if fused_rms_norm_exists(software) else {}


def fused_rms_norm_exists(software: Software) -> bool:
    """Whether the software has it, and the installed torch can trace it."""
    return software.torch >= FUSED_RMS_NORM_SINCE and known("_fused_rms_norm")
