"""Compared profiles size by size: time and memory, and predicted over measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bsprof.recommend.by_size import FIELD_NAMES, TIME_FIELD, AgainstMeasured
from bsprof.recommend.compared import Comparison
from bsprof.records import Point
from bsprof.report.tables import Column, Row, Table
from bsprof.report.words import quantity_text, status_text
from bsprof.units import format_bytes, format_seconds


def time_table(comparison: Comparison) -> Table | None:
    """Micro-steps by size in every profile; None with nothing predicted, or no predicted time."""
    predicted = [
        p for row in comparison.by_size for p in row.points if p is not None and p.prediction
    ]
    if all(point.micro_step_s is None for point in predicted):
        return None
    pairs = [pair for pair in comparison.against if pair.field == TIME_FIELD]
    return _table(
        comparison, "Time of a micro-step by size", "One forward and backward.", pairs, _time_cell
    )


def memory_table(comparison: Comparison) -> Table | None:
    """Memory by size in every profile; None with nothing predicted."""
    pairs = [pair for pair in comparison.against if pair.field != TIME_FIELD]
    return _table(
        comparison,
        "Memory by size",
        "Peak that counts against the memory limit.",
        pairs,
        _memory_cell,
    )


def _table(
    comparison: Comparison,
    caption: str,
    meaning: str,
    pairs: Sequence[AgainstMeasured],
    cell: Callable[[Point | None], str],
) -> Table | None:
    if not comparison.by_size:
        return None
    labels = [entry.label for entry in comparison.profiles]
    columns = [
        Column(key="micro_batch_size", title="micro-batch", meaning="Samples of a micro-step."),
        *(
            Column(key=f"profile{number}", title=label, meaning=meaning)
            for number, label in enumerate(labels, start=1)
        ),
        *(
            Column(
                key=f"against{pair.predicted + 1}",
                title=f"{labels[pair.predicted]} over {labels[pair.measured]}",
                meaning=f"Predicted over measured, {FIELD_NAMES[pair.field]}, less 1.",
            )
            for pair in pairs
        ),
    ]
    rows = [
        Row(
            cells=(
                f"{row.micro_batch_size:,}",
                *map(cell, row.points),
                *(_against_cell(pair, row.micro_batch_size) for pair in pairs),
            )
        )
        for row in comparison.by_size
    ]
    return Table(caption=caption, columns=tuple(columns), rows=tuple(rows))


def _time_cell(point: Point | None) -> str:
    if point is None:
        return ""
    if point.micro_step_s is None:
        return status_text(point) if not point.is_ok else "unknown"
    return quantity_text(point.micro_step_s, format_seconds)


def _memory_cell(point: Point | None) -> str:
    if point is None:
        return ""
    used = quantity_text(point.device_used_bytes, format_bytes)
    if point.is_ok:
        return used or "unknown"
    return f"{used} ({status_text(point)})" if used else status_text(point)


def _against_cell(pair: AgainstMeasured, size: int) -> str:
    if size not in pair.sizes:
        return ""
    return f"{100 * (pair.ratios[pair.sizes.index(size)] - 1):+.1f} %"
