"""A course's benchmark (yyin-dev/cs336-a2): small Llamas in plain PyTorch on an A100 of 40 GB.

Scores are written out; the norms, the loss and AdamW are the student's own, one loop over the
parameters. fp32 is strict, without TF32.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol
from bsprof.records import Precision, WorkloadSpec
from bsprof.validate.cases import Skipped
from bsprof.validate.rows import Row
from bsprof.validate.time.cases import TimeCase, TimeQuantity
from bsprof.validate.time.sources.common import is_judged, seconds_of, skipped

NAME = "cs336"
FILE = "cs336_a100.csv"
ASSUMPTIONS = (
    "torch's AdamW without foreach stands for the student's; torch not stated: 2.5",
    "the catalogue's Llama with these sizes and eager attention stands for the model",
)
_SIZES = re.compile(r"d_model=(\d+) d_ff=(\d+) .*?layers=(\d+) heads=(\d+) vocab=(\d+)")


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG001
    """Every judged row as a micro-step, or as an update."""
    return [_case(row) for row in rows]


def _case(row: Row) -> TimeCase | Skipped:
    seconds, size, seq_len = seconds_of(row), row.count("micro_batch"), row.count("seq_len")
    found = _SIZES.search(row.text("notes"))
    if not is_judged(row) or seconds is None or size is None or seq_len is None:
        return skipped(row, NAME, "out of memory", counts=False)
    if found is None:
        return skipped(row, NAME, "no sizes stated")
    width, hidden, layers, heads, vocabulary = (int(text) for text in found.groups())
    precision = Precision.AMP_BF16 if row.has("precision", "bf16") else Precision.FP32_STRICT
    steps = row.text("optimizer") != "none"
    return TimeCase(
        row=row.name,
        source=NAME,
        family="llama",
        model=f"{row.text('model')} n={seq_len} {precision.value}{' update' if steps else ''}",
        spec=WorkloadSpec(
            model="llama-2-7b",
            model_options={
                "width": width,
                "feed_forward": hidden,
                "layers": layers,
                "heads": heads,
                "key_heads": heads,
                "head_width": width // heads,
                "rotary_width": width // heads,
                "vocabulary": vocabulary,
            },
            seq_len=seq_len,
            precision=precision,
            optimizer="adamw",
            optimizer_options={"foreach": False},
            attention="eager",
        ),
        device="a100-40gb-sxm",
        micro_batch=size,
        seconds=seconds,
        quantity=TimeQuantity.UPDATE if steps else TimeQuantity.MICRO_STEP,
        software=software_of(torch="2.5"),
        protocol=Protocol(windows=(1, 1)),
        machine="cs336 A100",
        assumptions=ASSUMPTIONS,
    )
