"""GPT-2 124M in bf16 with torch.compile on many GPUs: two public trainers, as for memory.

A step of the single-file trainer is 0.5 million tokens, accumulation, clipping and the optimizer
step included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bsprof.records import Precision
from bsprof.validate.cases import Case, Skipped
from bsprof.validate.rows import Row
from bsprof.validate.sources import gpt2
from bsprof.validate.time.cases import TimeCase
from bsprof.validate.time.sources.common import seconds_of, skipped

NAME = "gpt2-sweeps"
FILE = gpt2.FILE
ASSUMPTIONS = (
    "gollem's torch is not stated: 2.6 with CUDA 12.4",
    "compiled as one graph, loss included",
)


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG001
    """Every row as an update."""
    return [_case(row) for row in rows]


def _case(row: Row) -> TimeCase | Skipped:
    seconds, ranks = seconds_of(row), row.count("n_gpus") or 1
    if seconds is None:
        return skipped(row, NAME, "no time published", counts=False)
    if "T" not in row.text("judge"):
        return skipped(row, NAME, "throttled, or on a card that is not named", counts=False)
    of_gollem = "gollem" in row.text("source")
    if of_gollem and row.count("micro_batch") == 1 and row.text("gpu") == "H100":
        reason = "batch one on the H100 is dominated by the trainer's own overhead"
        return skipped(row, NAME, reason, counts=False)
    # The reader for memory leaves out rows without memory and those of several GPUs.
    known = Row(row.name, {**row.cells, "n_gpus": "1", "peak_mem_gib": "1"})
    found = gpt2.read(known)
    if not isinstance(found, Case):
        return skipped(row, NAME, found.reason)
    compiled = row.text("compile") == "True"
    spec = found.spec
    spec = replace(spec, model_options={**spec.model_options, "compiled": False}, compile=compiled)
    set_name = ""
    if compiled and spec.precision is Precision.AMP_BF16:
        set_name = "gpt2-compiled" if ranks == 1 else "gpt2-compiled-ddp"
    return TimeCase(
        row=row.name,
        source=NAME,
        family=found.family,
        model=found.model,
        spec=spec,
        device=found.device,
        micro_batch=found.micro_batch,
        seconds=seconds,
        accumulation_steps=row.count("grad_accum") or 1,
        world_size=ranks,
        parallel="none" if ranks == 1 else "ddp",
        software=found.software,
        protocol=found.protocol,
        machine=f"{'gollem' if of_gollem else 'rented'} {found.device}",
        set_name=set_name,
        assumptions=ASSUMPTIONS,
    )
