"""What a law needs of a work, as numbers; a fit puts arrays of many works in their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bsprof.accounting.work import Work

MANY = 1e18
"""Stands for rows and columns that are not known: their effects vanish."""

_WIDEST_ALIGNMENT = {"bf16": 8, "fp16": 8, "tf32": 4}
"""Elements in the 16 bytes that tensor cores want leading dimensions to be multiples of (the
cuBLAS documentation, and `autoheuristic_padmm_a100`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Numbers, or equally long arrays of numbers, of works that follow one law.

    Attributes:
        flops, bytes, m, n, k, batch, rows, columns: As in `Work`; `MANY` where not known.
        area: Pixels of a convolution's kernel.
        stride: Of a convolution.
        causal: 1 or 0.
        misaligned: 1 where a leading dimension is odd, 0.5 where it is even but no multiple of
            16 bytes, else 0.
    """

    flops: Any
    bytes: Any
    m: Any
    n: Any
    k: Any
    batch: Any
    rows: Any
    columns: Any
    area: Any
    stride: Any
    causal: Any
    misaligned: Any


FIELDS = tuple(Shape.__slots__)


def shape_of(work: Work) -> Shape:
    """The numbers of one work."""
    return Shape(
        flops=float(work.flops),
        bytes=float(work.bytes),
        m=float(max(1, work.m)),
        n=float(max(1, work.n)),
        k=float(max(1, work.k)),
        batch=float(max(1, work.batch)),
        rows=float(work.rows) or MANY,
        columns=float(work.columns) or MANY,
        area=float(work.kernel_area),
        stride=float(work.stride),
        causal=float(work.causal),
        misaligned=_misaligned(work),
    )


def _misaligned(work: Work) -> float:
    multiple = _WIDEST_ALIGNMENT.get(work.compute, 1)
    sizes = [size for size in (work.n, work.k) if size > 1]
    if all(size % multiple == 0 for size in sizes):
        return 0.0
    return 1.0 if any(size % 2 for size in sizes) else 0.5
