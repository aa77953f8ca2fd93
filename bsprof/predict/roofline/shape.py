"""What a law needs of a work, as numbers; a fit puts arrays of many works in their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bsprof.accounting.work import Work, WorkClass

MANY = 1e18
"""Stands for rows and columns that are not known: their effects vanish."""

_HEAD_STEP = 32
_ALIGNED = {"bf16": 8, "fp16": 8, "tf32": 4, "fp32": 4, "fp64": 2}
"""Elements in the 16 bytes that kernels want leading dimensions to be multiples of (the cuBLAS
documentation). Missing it costs little without tensor cores and much with them: 1.03 and 2.2 times
the time (`autoheuristic_padmm_a100`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Numbers, or equally long arrays of numbers, of works that follow one law.

    Attributes:
        flops, bytes, m, n, k, batch, rows, columns: As in `Work`; `MANY` where not known.
        known_columns: 1 where columns are known, else 0.
        window: 1 where a convolution's kernel has more than one pixel, else 0.
        winograd: 1 where its kernel has nine and is moved by one, else 0.
        strided: 1 where it is moved by more, else 0.
        causal: 1 or 0.
        filled_head: k, filled up to the multiple of 32 that attention kernels are made for.
        misaligned: 1 where a leading dimension (of a convolution: channels) is odd, 0.5 where it
            is even but no multiple of 16 bytes, else 0.
    """

    flops: Any
    bytes: Any
    m: Any
    n: Any
    k: Any
    batch: Any
    rows: Any
    columns: Any
    known_columns: Any
    window: Any
    winograd: Any
    strided: Any
    causal: Any
    filled_head: Any
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
        known_columns=float(work.columns > 0),
        window=float(work.kernel_area > 1),
        winograd=float(work.kernel_area == 9 and work.stride == 1),
        strided=float(work.stride > 1),
        causal=float(work.causal),
        filled_head=float(-(-work.k // _HEAD_STEP) * _HEAD_STEP),
        misaligned=misalignment(work),
    )


def inner_sizes(work: Work) -> tuple[int, int]:
    """Sizes whose multiples matter: n and k, or the channels of a convolution's groups."""
    area = max(1, work.kernel_area)
    if work.work_class is WorkClass.CONVOLUTION_FORWARD:
        return work.n, work.k // area
    if work.work_class is WorkClass.CONVOLUTION_DATA:
        return work.n // area, work.k
    if work.work_class is WorkClass.CONVOLUTION_WEIGHT:
        return work.m // area, work.n
    return work.n, work.k


def misalignment(work: Work) -> float:
    """1 where an inner size is odd, 0.5 where it is even but no multiple of 16 bytes, else 0."""
    multiple = _ALIGNED.get(work.compute, 1)
    sizes = [size for size in inner_sizes(work) if size > 1]
    if all(size % multiple == 0 for size in sizes):
        return 0.0
    return 1.0 if any(size % 2 for size in sizes) else 0.5
