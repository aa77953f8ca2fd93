"""What a forward pass of a model multiplies, as timm's own tables say."""

from __future__ import annotations

import functools
from pathlib import Path

from bsprof.validate.rows import read_rows
from bsprof.validate.sources.timm_names import name_today

FILE = "timm_infer_rtx4090_3090_5090.csv"


def architecture(model: str) -> str:
    """The architecture of a published name as today's timm calls it, without what it learned."""
    return name_today(model.partition(".")[0])


@functools.cache
def gmacs_by_model(path: Path) -> dict[tuple[str, int], tuple[float, ...]]:
    """Published multiplications of one sample, in 10^9, by architecture and image size.

    Several where the tables disagree: a network may be counted before or after its branches are
    merged, and with or without the products of its attention.
    """
    found: dict[tuple[str, int], list[float]] = {}
    for row in read_rows(path):
        gmacs, size = row.number("fwd_gmacs"), row.count("image_size")
        if gmacs and size:
            found.setdefault((architecture(row.text("model")), size), []).append(gmacs)
    return {key: tuple(sorted(set(values))) for key, values in found.items()}
