"""Fine-tuning on one A100 by foundation-model-stack/fms-acceleration: Hugging Face's Trainer.

Settings as for memory (`bsprof.validate.sources.fms`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bsprof.validate.cases import Case, Skipped
from bsprof.validate.rows import Row
from bsprof.validate.sources import fms
from bsprof.validate.time.cases import TimeCase
from bsprof.validate.time.sources.common import seconds_of, skipped

NAME = fms.NAME
FILE = fms.FILE
ASSUMPTIONS = (
    *fms.ASSUMPTIONS,
    "attention is FlashAttention 2; no sample is longer than the window",
)


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG001
    """Every row as an update."""
    return [_case(row) for row in rows]


def _case(row: Row) -> TimeCase | Skipped:
    seconds = seconds_of(row)
    if row.count("n_gpus") != 1 or seconds is None:
        return skipped(row, NAME, "several GPUs, or no time published", counts=False)
    if row.count("seq_len") is None:
        return skipped(row, NAME, "the length of the samples is not stated")
    found = fms.read(row)
    if not isinstance(found, Case):
        # A checkpoint of quantized weights is another model; one quantized on loading is not.
        other_model = "gptq" in row.text("model").lower()
        return skipped(row, NAME, found.reason, counts=not other_model)
    return TimeCase(
        row=row.name,
        source=NAME,
        family=found.family,
        model=found.model,
        spec=replace(found.spec, model_options={**found.spec.model_options, "windowed": False}),
        device=found.device,
        micro_batch=found.micro_batch,
        seconds=seconds,
        software=found.software,
        protocol=found.protocol,
        machine="fms A100",
        assumptions=ASSUMPTIONS,
    )
