"""The CUDA context and the code of kernels on the device, outside the caching allocator."""

from __future__ import annotations

from bsprof.predict.target import Software
from bsprof.records import DeviceSpec, Place, Quantity, Term

MIB = 2**20

FIRST_LAZY_TORCH = (1, 13)
FIRST_LAZY_CUDA = (11, 7)
"""Torch sets CUDA_MODULE_LOADING=LAZY itself since 1.13 (pytorch PR #86509); CUDA has known it
since 11.7."""

LAZY = Quantity(value=512 * MIB, low=420 * MIB, high=700 * MIB)
LAZY_SOURCE = (
    "modules loaded lazily: 426 MiB on an RTX 6000 Ada (unsloth-zoo #1053), 0.47 GiB on an "
    "A100-80GB and 0.55 GiB before any collective (stas00/ml-engineering), 300 to 400 MB as the "
    "maintainers' rule (pytorch #107667, #109888); the upper end leaves room for the kernels "
    "that training loads"
)

EAGER = Quantity(value=1400 * MIB, low=920 * MIB, high=1800 * MIB)
EAGER_SOURCE = (
    "every module loaded at once: 0.92 GiB on an A100-80GB (stas00/ml-engineering) and 1001 MiB "
    "on an RTX 3090 (pytorch #54564), both before cuDNN and cuBLAS load theirs; above 1000 MB as "
    "the maintainers' rule before CUDA 11.7 (pytorch #107667)"
)

PROCESS = Quantity(value=290 * MIB, low=200 * MIB, high=600 * MIB)
PROCESS_SOURCE = (
    "data segment of a Python process that has loaded torch and built an optimizer, measured with "
    "torch 2.13 on Linux; it grows with stacks of threads, what libraries keep and holes in the "
    "heap"
)

ROCM = Quantity(value=600 * MIB, low=300 * MIB, high=1500 * MIB)
ROCM_SOURCE = "assumed from CUDA's, no published figure found"


def context_term(device: DeviceSpec, software: Software) -> Term:
    """Context and loaded modules of a process that trains on the device; on a processor all that
    the process holds beside tensors.

    It grows as kernels load; the interval holds that growth. A figure of the device's own
    counts for software that loads modules lazily, which is what such figures were read with.
    """
    if device.kind == "cpu":
        return Term(name="process", bytes=PROCESS, place=Place.OUTSIDE, source=PROCESS_SOURCE)
    is_lazy = software.torch >= FIRST_LAZY_TORCH and software.cuda >= FIRST_LAZY_CUDA
    if device.kind == "rocm":
        amount, source = ROCM, ROCM_SOURCE
    elif is_lazy:
        amount, source = LAZY, LAZY_SOURCE
    else:
        amount, source = EAGER, EAGER_SOURCE
    if device.context_bytes is not None and (is_lazy or device.kind == "rocm"):
        amount = device.context_bytes
        source = device.sources.get("context_bytes", "device catalogue")
    return Term(name="CUDA context", bytes=amount, place=Place.OUTSIDE, source=source)
