"""The software whose rules apply: as the user names it, or as it is installed (loads no torch)."""

from __future__ import annotations

import re
from importlib import metadata

from bsprof.predict.target import Software

_WHEELS: tuple[tuple[tuple[int, int], tuple[int, int], int], ...] = (
    ((2, 14), (13, 0), 9),
    ((2, 8), (12, 8), 9),
    ((2, 7), (12, 6), 9),
    ((2, 5), (12, 4), 9),
    ((2, 4), (12, 1), 9),
    ((2, 1), (12, 1), 8),
    ((1, 13), (11, 7), 8),
    ((0, 0), (11, 3), 8),
)
"""From this torch on: CUDA and cuDNN of its usual wheel (requirements of the wheels on PyPI)."""

DEFAULT_TORCH = Software().torch


def software_of(
    *, torch: str | None = None, cuda: str | None = None, cudnn: str | None = None
) -> Software:
    """The software of these versions; what is None is as usual for that torch.

    Args:
        torch, cuda: Major and minor version, `2.13`; None is the installed torch.
        cudnn: Major version.
    """
    version = DEFAULT_TORCH if torch is None else _pair(torch)
    if torch is None:
        version, built_for = _installed_torch()
        cuda = cuda or built_for
    usual_cuda, usual_cudnn = next((c, d) for since, c, d in _WHEELS if version >= since)
    return Software(
        torch=version,
        cuda=usual_cuda if cuda is None else _pair(cuda),
        cudnn=usual_cudnn if cudnn is None else int(cudnn),
    )


def _installed_torch() -> tuple[tuple[int, int], str | None]:
    """Version of the installed torch, and the CUDA that it was built for if it says so."""
    try:
        text = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return DEFAULT_TORCH, None
    built_for = re.search(r"\+cu(\d+)(\d)$", text)
    return _pair(text), f"{built_for[1]}.{built_for[2]}" if built_for else None


def _pair(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)
