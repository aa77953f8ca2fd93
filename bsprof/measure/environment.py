"""The software and settings around a measurement (worker side); unknown fields stay out."""

from __future__ import annotations

import os
import platform
import sys

from bsprof import __version__
from bsprof.measure.devices.protocol import Device
from bsprof.records import Environment, Scalar

_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_THRESHOLD_",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_CUDNN_V8_API_DISABLED",
)
"""Environment variables that change speed or memory; recorded where they are set."""


def environment(device: Device) -> Environment:
    """The environment of this process as it will measure on `device`."""
    import torch

    libraries: dict[str, Scalar] = {}
    for name in ("cuda", "hip"):
        version = getattr(torch.version, name, None)
        if version is not None:
            libraries[name] = str(version)
    if torch.backends.cudnn.is_available():
        libraries["cudnn"] = torch.backends.cudnn.version()
    settings: dict[str, Scalar] = {"threads": torch.get_num_threads()}
    settings.update({name: os.environ[name] for name in _VARIABLES if name in os.environ})
    settings.update(device.environment_settings())
    return Environment(
        bsprof=__version__,
        python=".".join(map(str, sys.version_info[:3])),
        torch=torch.__version__,
        platform=f"{platform.system()} {platform.release()} {platform.machine()}",
        libraries=libraries,
        settings=settings,
    )
