"""Fused attention: both products and the softmax between them in one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bsprof.predict.roofline.laws.law import MICROSECOND, Parts, Term
from bsprof.predict.roofline.limits import Limits
from bsprof.predict.roofline.shape import Shape

BLOCK = 128.0
"""Queries that one multiprocessor takes at a time, and keys by which a causal mask is skipped."""


def attention_terms(share: float) -> Mapping[str, Term]:
    """Terms of an implementation that reaches about so much of the ceiling on long sequences."""
    return {
        "share": Term(default=share, low=0.03, high=1.1, spread=0.3, transfer=0.15),
        "bandwidth_share": Term(default=0.7, low=0.2, high=1.1, spread=0.3, transfer=0.1),
        "head": Term(default=15.0, low=0.5, high=300.0, spread=0.8, transfer=0.4),
        "queries": Term(default=80.0, low=0.5, high=1000.0, spread=0.8, transfer=0.4),
        "keys": Term(default=80.0, low=1.0, high=3000.0, spread=0.8, transfer=0.4),
        "chain": Term(default=1.0, low=0.05, high=8.0, spread=0.7, transfer=0.4),
        "causal": Term(default=1.0, low=0.1, high=6.0, spread=0.5, transfer=0.3),
        "overlap": Term(default=2.0, low=1.0, high=6.0, spread=0.3, transfer=0.2),
        "setup_us": Term(default=3.0, low=0.1, high=40.0, spread=0.6, transfer=0.3),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLaw:
    """Attention of m queries to n keys with heads of size k, `batch` times.

    Work = products * 2 m n k batch, k filled up to a multiple of 32, of which a causal mask leaves
    1 - 1/2 / (1 + causal * 128/n); compute = work / (share * ceiling) * (1 + head/k)
    * sqrt(1 + (queries/m)^2) * sqrt(1 + (keys/n)^2); chain = what one multiprocessor needs for 128
    queries, `chain` times; traffic and total as for matrix products.

    Attributes:
        products: Matrix products of m x n x k: 2 forward; 5 backward, the scores once more.
    """

    products: int
    terms: Mapping[str, Term] = field(default_factory=lambda: attention_terms(0.6))

    def parts(self, shape: Shape, limits: Limits, terms: Mapping[str, Any]) -> Parts:
        """See `Law`."""
        rate = terms["share"] * limits.flops_per_s
        diagonal = terms["causal"] * BLOCK / shape.n
        left = 1.0 - 0.5 * shape.causal / (1.0 + diagonal)
        one_row = self.products * 2.0 * shape.n * shape.filled_head * left / rate
        filled = (
            (1.0 + terms["head"] / shape.k)
            * (1.0 + (terms["queries"] / shape.m) ** 2) ** 0.5
            * (1.0 + (terms["keys"] / shape.n) ** 2) ** 0.5
        )
        compute = one_row * shape.m * shape.batch * filled
        chain = terms["chain"] * one_row * BLOCK * limits.units
        traffic = shape.bytes / (terms["bandwidth_share"] * limits.bytes_per_s)
        q = terms["overlap"]
        setup = terms["setup_us"] * MICROSECOND
        total = setup + (compute**q + traffic**q + chain**q) ** (1.0 / q)
        return Parts(compute_s=compute, traffic_s=traffic, latency_s=setup + chain, total_s=total)
