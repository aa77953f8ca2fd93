"""Matrix products, and convolutions as the matrix products that they are computed by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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

TILE = 128.0
"""Rows and columns of the output that one multiprocessor computes at a time; the usual size."""


def contraction_terms(share: float, *, misaligned: float = 0.5) -> Mapping[str, Term]:
    """Terms of a class whose large works reach about so much of the ceiling of matmuls.

    Args:
        share: Expected.
        misaligned: Expected of odd dimensions: much with tensor cores, little without.
    """
    return {
        "share": Term(default=share, low=0.05, high=1.1, spread=0.25, transfer=0.04),
        "bandwidth_share": Term(default=0.85, low=0.2, high=1.1, spread=0.2, transfer=0.1),
        "edge": Term(default=8.0, low=0.1, high=200.0, spread=1.0, transfer=0.5),
        "depth": Term(default=40.0, low=1.0, high=500.0, spread=0.7, transfer=0.4),
        "chain": Term(default=0.5, low=0.05, high=8.0, spread=0.7, transfer=0.4),
        "split": Term(default=1500.0, low=100.0, high=50000.0, spread=0.8, transfer=0.5),
        "overlap": Term(default=2.0, low=1.0, high=6.0, spread=0.3, transfer=0.2),
        "misaligned": Term(default=misaligned, low=0.01, high=4.0, spread=0.7, transfer=0.4),
        "setup_us": Term(default=1.0, low=0.05, high=20.0, spread=0.5, transfer=0.3),
        **CACHE_TERMS,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractionLaw:
    """A product of (m, k) and (k, n), `batch` times.

    compute = flops / (share * ceiling) * (1 + edge/m) * (1 + edge/n) * (1 + depth/k)
              * (1 + misaligned * how misaligned it is)
    traffic = bytes / (bandwidth_share * bandwidth), faster within the cache
    chain   = what one multiprocessor needs for one tile of 128 x 128, `chain` times, cut into
              1 + k/split pieces when k is long: few tiles do not fill the device
    total   = setup + (compute^q + traffic^q + chain^q)^(1/q), q = overlap: 1 adds, large takes
              the longest
    """

    terms: Mapping[str, Term] = field(default_factory=lambda: contraction_terms(0.9))

    def parts(self, shape: Shape, limits: Limits, terms: Mapping[str, Any]) -> Parts:
        """See `Law`."""
        rate = terms["share"] * limits.flops_per_s
        edges = (1.0 + terms["edge"] / shape.m) * (1.0 + terms["edge"] / shape.n)
        crooked = 1.0 + terms["misaligned"] * shape.misaligned
        compute = shape.flops / rate * edges * (1.0 + terms["depth"] / shape.k) * crooked
        memory = terms["bandwidth_share"] * limits.bytes_per_s
        traffic = shape.bytes / (memory * cached_bandwidth(shape.bytes, limits, terms))
        tile = 2.0 * TILE * TILE * shape.k * limits.units / rate
        chain = terms["chain"] * tile / (1.0 + shape.k / terms["split"])
        q = terms["overlap"]
        setup = terms["setup_us"] * MICROSECOND
        total = setup + (compute**q + traffic**q + chain**q) ** (1.0 / q)
        return Parts(compute_s=compute, traffic_s=traffic, latency_s=setup + chain, total_s=total)


def convolution_terms(
    share: float, *, winograd: float, misaligned: float = 0.5
) -> Mapping[str, Term]:
    """Terms of one pass of a convolution.

    Args:
        share: Expected, as in `contraction_terms`.
        winograd: Expected ratio of multiplications that 3 x 3 kernels are computed with; 1 where
            tensor cores compute them directly.
        misaligned: As in `contraction_terms`.
    """
    return {
        **contraction_terms(share, misaligned=misaligned),
        "share": Term(default=share, low=0.05, high=1.1, spread=0.3, transfer=0.08),
        "winograd": Term(default=winograd, low=1.0, high=2.25, spread=0.25, transfer=0.15),
        "window": Term(default=0.1, low=0.005, high=3.0, spread=1.0, transfer=0.4),
        "strided": Term(default=0.2, low=0.005, high=4.0, spread=1.0, transfer=0.4),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionLaw:
    """The product that a pass of a convolution is: `ContractionLaw`, whose compute is multiplied by

    (1 + window) for kernels of more than one pixel, whose inputs are gathered,
    (1 + strided) for those moved by more than one,
    1 / winograd for 3 x 3 moved by one: fewer multiplications (Winograd, at most 2.25 times fewer).
    """

    terms: Mapping[str, Term] = field(default_factory=lambda: convolution_terms(0.7, winograd=1.05))
    product: ContractionLaw = field(default_factory=ContractionLaw)

    def parts(self, shape: Shape, limits: Limits, terms: Mapping[str, Any]) -> Parts:
        """See `Law`."""
        factor = (1.0 + terms["window"] * shape.window) * (1.0 + terms["strided"] * shape.strided)
        factor = factor / (1.0 + (terms["winograd"] - 1.0) * shape.winograd)
        return self.product.parts(replace(shape, flops=shape.flops * factor), limits, terms)
