"""torchtune's table of its savings: Llama 3.2 3B on one A100, two packed samples of 4096 tokens.

The catalogue's Llama stands for torchtune's; each layer is compiled there, the whole model here.
Chunks of the loss, and optimizer steps within the backward pass, compute the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol
from bsprof.records import Precision, WorkloadSpec
from bsprof.validate.cases import Skipped
from bsprof.validate.rows import Row
from bsprof.validate.time.cases import TimeCase
from bsprof.validate.time.sources.common import is_judged, seconds_of, skipped

NAME = "torchtune"
FILE = "torchtune_readme.csv"
ASSUMPTIONS = (
    "AdamW is the fused one, as in torchtune's recipes",
    "attention over packed samples costs what causal attention costs",
    "torch not stated: 2.5",
)


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG001
    """Every row as an update."""
    return [_case(row) for row in rows]


def _case(row: Row) -> TimeCase | Skipped:
    notes, seconds = row.text("notes").lower(), seconds_of(row)
    size, seq_len = row.count("micro_batch"), row.count("seq_len")
    if not is_judged(row) or seconds is None or size is None or seq_len is None:
        return skipped(row, NAME, "several GPUs, or settings not stated", counts=False)
    if row.text("kind") != "train_full":
        return skipped(row, NAME, "ranks and targets of the adapters are not stated")
    if "offload" in notes:
        return skipped(row, NAME, "activations are offloaded to the host")
    return TimeCase(
        row=row.name,
        source=NAME,
        family="llama",
        model=f"{row.text('model')} {notes.rpartition(',')[2].strip()}",
        spec=WorkloadSpec(
            model="llama-3.2-3b",
            seq_len=seq_len,
            precision=Precision.BF16,
            optimizer="adamw",
            optimizer_options={"fused": True},
            activation_checkpointing="full" if "checkpointing" in notes else "none",
            attention="sdpa",
            compile="compile" in notes,
        ),
        device="a100-80gb-sxm",
        micro_batch=size,
        seconds=seconds,
        software=software_of(torch="2.5"),
        protocol=Protocol(windows=(1, 1), fresh_batch=True),
        machine="torchtune A100",
        assumptions=ASSUMPTIONS,
    )
