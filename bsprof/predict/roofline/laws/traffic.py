"""Work whose time is the bytes that it moves: elementwise, reductions, copies and their like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bsprof.predict.roofline.laws.law import (
    CACHE_TERMS,
    MICROSECOND,
    Parts,
    Term,
    cached_bandwidth,
)
from bsprof.predict.roofline.limits import Limits
from bsprof.predict.roofline.shape import Shape


def traffic_terms(share: float, *, spread: float = 0.3) -> Mapping[str, Term]:
    """Terms of a class whose large works reach about so much of the device's bandwidth."""
    return {
        "share": Term(default=share, low=0.02, high=1.02, spread=spread, transfer=0.15),
        "few_rows": Term(default=0.1, low=0.001, high=20.0, spread=1.0, transfer=0.5),
        "short_rows": Term(default=5.0, low=0.01, high=1000.0, spread=1.0, transfer=0.5),
        "setup_us": Term(default=0.5, low=0.02, high=20.0, spread=0.5, transfer=0.3),
        **CACHE_TERMS,
    }


LONG = 4096.0
"""Columns from which a kernel no longer keeps a row to itself and reads it again."""


def row_terms(share: float, *, long_rows: float = 0.1) -> Mapping[str, Term]:
    """Terms of a class that works row by row; `long_rows` as expected of it."""
    return {
        **traffic_terms(share),
        "long_rows": Term(default=long_rows, low=0.001, high=3.0, spread=1.0, transfer=0.4),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficLaw:
    """Bytes over bandwidth.

    traffic = bytes / (share * bandwidth), faster within the cache,
              * (1 + few_rows * units/rows) * (1 + short_rows/columns) where both are known
              * (1 + long_rows / (1 + (4096/columns)^2)), for laws that have that term
    total   = setup + traffic
    """

    terms: Mapping[str, Term] = field(default_factory=lambda: traffic_terms(0.85))

    def parts(self, shape: Shape, limits: Limits, terms: Mapping[str, Any]) -> Parts:
        """See `Law`."""
        memory = terms["share"] * limits.bytes_per_s
        traffic = shape.bytes / (memory * cached_bandwidth(shape.bytes, limits, terms))
        few = 1.0 + terms["few_rows"] * limits.units / shape.rows
        short = 1.0 + terms["short_rows"] / shape.columns
        traffic = traffic * few * short
        if "long_rows" in terms:
            long = shape.known_columns / (1.0 + (LONG / shape.columns) ** 2)
            traffic = traffic * (1.0 + terms["long_rows"] * long)
        setup = terms["setup_us"] * MICROSECOND
        none = 0.0 * traffic
        return Parts(
            compute_s=none, traffic_s=traffic, latency_s=setup + none, total_s=setup + traffic
        )
