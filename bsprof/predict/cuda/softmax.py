"""Softmax of fp16 into fp32: on CUDA one kernel, on the CPU a copy of the input first.

bf16 is copied on both (`aten/src/ATen/native/SoftMax.cpp` asks for fp16 by name).
"""

from __future__ import annotations

from typing import Any

import torch

from bsprof.predict.cuda.copies import contiguous_copy
from bsprof.predict.cuda.overrides import Kernel

aten = torch.ops.aten


def _converting(call: Any) -> Kernel:
    def kernel(tensor: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
        converting = tensor.dtype == torch.float16 and dtype == torch.float32
        if not converting and dtype is not None:
            tensor = tensor.to(dtype)
        copy = contiguous_copy(tensor)  # `host_softmax` in `native/cuda/SoftMax.cu`
        out = call(tensor, dim, converting)
        del copy
        return out

    return kernel


KERNELS: dict[str, Kernel] = {
    "softmax.int": _converting(aten._softmax),
    "log_softmax.int": _converting(aten._log_softmax),
}
