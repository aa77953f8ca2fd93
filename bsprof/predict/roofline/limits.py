"""What a device can do at most, as numbers that laws divide by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one device and compute type; a fit puts arrays, one entry a row, in their place.

    Attributes:
        flops_per_s: Ceiling of large matmuls in the work's compute type.
        bytes_per_s: Ceiling of device memory.
        l2_bytes: Second-level cache.
        units: SMs, compute units or processor threads.
    """

    flops_per_s: Any
    bytes_per_s: Any
    l2_bytes: Any
    units: Any
