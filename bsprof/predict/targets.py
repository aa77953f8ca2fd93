"""What of a device decides a trace."""

from __future__ import annotations

from bsprof.predict.target import Semantics, Software, TraceTarget
from bsprof.records import DeviceSpec

ROCM_CAPABILITY = (9, 0)
"""ROCm has no compute capability; its attention kernels cover what those of Hopper do."""


def trace_target(device: DeviceSpec, software: Software) -> TraceTarget:
    """The target of a device's traces."""
    if device.kind == "cpu":
        return TraceTarget(semantics=Semantics.CPU, software=software)
    return TraceTarget(
        semantics=Semantics.CUDA,
        compute_capability=device.compute_capability or ROCM_CAPABILITY,
        software=software,
    )
