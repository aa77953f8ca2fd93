"""TinyLlama pretrained with litgpt on one A100 of 40 GB, eager; the other rows ran Thunder.

The tutorials' times are of samples of many lengths, whose mean is not stated.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bsprof.validate.cases import Case, Skipped
from bsprof.validate.rows import Row
from bsprof.validate.sources import litgpt
from bsprof.validate.time.cases import TimeCase
from bsprof.validate.time.sources.common import is_judged, seconds_of, skipped

NAME = litgpt.NAME
FILE = litgpt.FILE
ASSUMPTIONS = ("torch not stated: 2.4",)


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG001
    """Every row as an update."""
    return [_case(row) for row in rows]


def _case(row: Row) -> TimeCase | Skipped:
    seconds = seconds_of(row)
    if not is_judged(row) or seconds is None:
        return skipped(row, NAME, "samples of many lengths, or no time", counts=False)
    found = litgpt.read(row)
    if not isinstance(found, Case):
        return skipped(row, NAME, found.reason)
    return TimeCase(
        row=row.name,
        source=NAME,
        family="llama",
        model=found.model,
        spec=found.spec,
        device=found.device,
        micro_batch=found.micro_batch,
        seconds=seconds,
        software=found.software,
        protocol=found.protocol,
        machine="litgpt A100",
        assumptions=ASSUMPTIONS,
    )
