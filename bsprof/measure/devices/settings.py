"""Settings around a measurement, read field by field: none is worth a crash."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import torch

from bsprof.records import Scalar

# Environment variables that change speed or memory, by prefix or whole name.
_VARIABLE_PREFIXES = (
    "ATEN_",
    "CUBLAS",
    "CUDA_",
    "CUDNN_",
    "DNNL_",
    "GOMP_",
    "HIP_",
    "HSA_",
    "KMP_",
    "MALLOC_",
    "MIOPEN_",
    "MKL_",
    "NCCL_",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_",
    "ONEDNN_",
    "PYTORCH_",
    "ROCR_VISIBLE_DEVICES",
    "TORCH_ALLOW_TF32",
    "TORCH_BLAS_",
    "TORCH_COMPILE_",
    "TORCH_CUBLAS",
    "TORCH_CUDNN_",
    "TORCHINDUCTOR_",
    "ZE_",
)
_VARIABLE_NAMES = ("GLIBC_TUNABLES", "LD_PRELOAD")


def read_fields(readers: Mapping[str, Callable[[], Scalar]]) -> dict[str, Scalar]:
    """The value of every field that can be read, in the order given.

    Left out: fields this torch does not have, and those that refuse (the old and the new TF32
    switches exclude each other and raise RuntimeError when read in the wrong mix).
    """
    values: dict[str, Scalar] = {}
    for name, reader in readers.items():
        try:
            value = reader()
        except (AttributeError, AssertionError, ImportError, OSError, RuntimeError, ValueError):
            continue
        if value is None or isinstance(value, (bool, int, float, str)):
            values[name] = value
        else:
            values[name] = str(value)
    return values


def relevant_variables(environment: Mapping[str, str]) -> dict[str, Scalar]:
    """Environment variables that change speed or memory, by name, sorted."""
    return {
        name: environment[name]
        for name in sorted(environment)
        if name in _VARIABLE_NAMES or name.startswith(_VARIABLE_PREFIXES)
    }


def common_settings() -> dict[str, Scalar]:
    """Settings that every device shares: threads, matmul precision, determinism, variables."""
    settings = read_fields(
        {
            "threads": torch.get_num_threads,
            "interop_threads": torch.get_num_interop_threads,
            "float32_matmul_precision": torch.get_float32_matmul_precision,
            "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
            "default_dtype": lambda: str(torch.get_default_dtype()),
            "mkldnn_enabled": lambda: bool(torch.backends.mkldnn.enabled),
        }
    )
    return settings | relevant_variables(os.environ)
