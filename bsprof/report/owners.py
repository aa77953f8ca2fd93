"""Who holds the bytes of a point's peak: categories and modules; pure Python."""

from __future__ import annotations

from collections.abc import Mapping

from bsprof.records import Category, Point, ranked_shares
from bsprof.units import format_share

NO_MODULE = "(no module: loss, gradients, optimizer)"


def owner_text(point: Point) -> str:
    """Which category holds most of the live bytes at the peak: `activations 61 %`."""
    return shares_text(point.peak_by_category_bytes, most=1)


def shares_text(held: Mapping[Category, int], *, most: int) -> str:
    """The categories that hold most, so many at most: `activations 71 %, weights 12 %`."""
    ranked = ranked_shares(held)[:most]
    return ", ".join(f"{category.words} {format_share(share)}" for category, share in ranked)


def ranked_modules(point: Point) -> list[tuple[str, int]]:
    """Modules and their bytes at the peak, largest first; repeats together where that is known."""
    known = point.prediction
    modules = {} if known is None else known.module_groups or known.top_modules
    ranked = sorted(modules.items(), key=lambda item: (-item[1], item[0]))
    return [(name or NO_MODULE, held) for name, held in ranked if held > 0]


def live_bytes(point: Point) -> float:
    """Bytes that are live at the allocated peak."""
    if point.peak_allocated_bytes is not None:
        return point.peak_allocated_bytes.value
    return float(sum(point.peak_by_category_bytes.values()))
