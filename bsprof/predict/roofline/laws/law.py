"""What a law is, and the pieces that several share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bsprof.predict.roofline.limits import Limits
from bsprof.predict.roofline.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A coefficient of a law before any data: always positive, so fitted by its logarithm.

    Attributes:
        default: Expected value.
        low, high: Bounds that physics sets.
        spread: 1 sigma of its logarithm, before data.
        transfer: 1 sigma of the logarithm of its ratio between a family and its relative.
    """

    default: float
    low: float
    high: float
    spread: float = 0.7
    transfer: float = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Seconds of a work by what they are spent on; they overlap, so the total is less than the sum.

    Attributes:
        compute_s: Multipliers at work, unfilled tiles included.
        traffic_s: Memory at work.
        latency_s: The longest chain of one tile, and fixed costs of starting.
        total_s: All together, launches left out.
    """

    compute_s: Any
    traffic_s: Any
    latency_s: Any
    total_s: Any


class Law(Protocol):
    """Seconds from shape, limits and terms."""

    @property
    def terms(self) -> Mapping[str, Term]:
        """Its coefficients, by name."""
        ...

    def parts(self, shape: Shape, limits: Limits, terms: Mapping[str, Any]) -> Parts:
        """Device seconds of a work, launches left out; numbers or arrays."""
        ...


CACHE_TERMS: Mapping[str, Term] = {
    "cache_gain": Term(default=0.8, low=0.01, high=8.0, spread=0.7, transfer=0.5),
    "cache_share": Term(default=0.7, low=0.3, high=1.1, spread=0.3, transfer=0.25),
}
"""What work smaller than the second-level cache gains over memory, and up to which share of it
(`gpubenches_smallkernels`: 0.5 to 0.9 of the cache, up to 6.6 times faster)."""

MICROSECOND = 1e-6


def cached_bandwidth(traffic: Any, limits: Limits, terms: Mapping[str, Any]) -> Any:
    """Factor on bandwidth of work that moves so many bytes: 1 far above the cache's size.

    1 + gain / (1 + (bytes / (share * cache))^8): time still grows with bytes everywhere.
    """
    filled = (traffic / (terms["cache_share"] * limits.l2_bytes)) ** 2
    return 1.0 + terms["cache_gain"] / (1.0 + filled**4)
