"""The software and settings around a measurement (worker side); unknown fields stay out."""

from __future__ import annotations

import platform
import sys

import torch

from bsprof import __version__
from bsprof.measure.devices.protocol import Device
from bsprof.measure.devices.settings import read_fields
from bsprof.records import Environment


def environment(device: Device) -> Environment:
    """The environment of this process as it will measure on `device`."""
    version = torch.version
    return Environment(
        bsprof=__version__,
        python=".".join(map(str, sys.version_info[:3])),
        torch=str(torch.__version__),
        platform=f"{platform.system()} {platform.release()} {platform.machine()}",
        libraries=read_fields(
            {
                "cuda": lambda: getattr(version, "cuda", None),
                "hip": lambda: getattr(version, "hip", None),
                "cudnn": lambda: torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
                "libc": lambda: " ".join(platform.libc_ver()),
            }
        ),
        settings=device.environment_settings(),
    )
