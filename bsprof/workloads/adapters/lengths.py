"""How long the samples of a data set are, and which of them a batch takes (no torch needed)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from numbers import Number
from typing import Any

from bsprof.errors import WorkloadError

LONGEST = 100.0


def parse_lengths(text: str) -> float | None:
    """The percentile of length that a batch reaches up to; None for batches as they come.

    `longest` is the percentile 100, `p95` the percentile 95, `histogram` none.

    Raises:
        WorkloadError: none of these.
    """
    if text == "longest":
        return LONGEST
    if text == "histogram":
        return None
    try:
        percentile = float(text.removeprefix("p")) if text.startswith("p") else math.nan
    except ValueError:
        percentile = math.nan
    if not 0 < percentile <= LONGEST:
        raise WorkloadError(
            f"cannot read lengths={text!r}",
            next_step="write 'longest', a percentile like 'p95', or 'histogram'",
        )
    return percentile


def sample_length(sample: Any) -> int | None:
    """Elements in the first tensor or sequence of a sample; None where there is none.

    Tensors and arrays count with all their dimensions, so that larger images are longer; of a
    mapping with `input_ids` these are what counts.
    """
    shape = getattr(sample, "shape", None)
    if shape is not None:
        return math.prod(shape) if len(shape) else None
    if isinstance(sample, str | bytes):
        return len(sample)
    if isinstance(sample, Mapping):
        parts = [sample["input_ids"]] if "input_ids" in sample else list(sample.values())
    elif isinstance(sample, list | tuple):
        if sample and isinstance(sample[0], Number):
            return len(sample)
        parts = list(sample)
    elif is_dataclass(sample) and not isinstance(sample, type):
        parts = [getattr(sample, field.name) for field in fields(sample)]
    else:
        return None
    return next((length for length in map(sample_length, parts) if length is not None), None)


def chosen(lengths: Sequence[int], percentile: float, size: int) -> list[int]:
    """Positions of the `size` samples that end at a percentile of length, shortest first.

    Where fewer than `size` samples are that short, the next longer ones complete the batch.
    """
    order = sorted(range(len(lengths)), key=lambda position: (lengths[position], position))
    end = max(size, _ceil(percentile * len(lengths) / LONGEST))
    return order[end - size : end]


def samples_needed(percentile: float, size: int) -> int:
    """Samples among which so many lie at or below a percentile."""
    return _ceil(size * LONGEST / percentile)


def _ceil(number: float) -> int:
    # Rounded first: 99.9 % of 1000 is 999.0000000000001 in binary.
    return math.ceil(round(number, 6))
