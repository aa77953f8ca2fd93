"""What the readers of all sources do alike."""

from __future__ import annotations

from bsprof.validate.cases import Skipped
from bsprof.validate.rows import Row


def skipped(row: Row, source: str, reason: str, *, counts: bool = True) -> Skipped:
    """A row without a case.

    Args:
        row: The row.
        source: Whose it is.
        reason: Why.
        counts: Whether it is one that should be scored.
    """
    return Skipped(
        row=row.name, source=source, model=row.text("model"), reason=reason, counts=counts
    )


def seconds_of(row: Row) -> float | None:
    """Seconds of an update as published, or as the published rate says."""
    milliseconds = row.number("step_ms")
    if milliseconds:
        return milliseconds / 1e3
    rate, size = row.number("samples_per_s_per_gpu"), row.number("micro_batch")
    if not rate or not size:
        return None
    return (row.count("grad_accum") or 1) * size / rate


def is_judged(row: Row) -> bool:
    """Whether the row holds a throughput of one GPU that is to be scored."""
    return "T1" in row.text("judge")
