"""torchao's fine-tuning of ViT-H/14 with torch's fused Adam, compiled, on an RTX 4070 Ti SUPER.

Its other rows are of optimizers and quantized products of torchao, or do not state an image size.
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

NAME = "torchao"
FILE = "torchao_training.csv"
ASSUMPTIONS = ("bf16 by autocast, compiled as one graph",)


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG001
    """The row with torch's own optimizer as an update."""
    return [_case(row) for row in rows]


def _case(row: Row) -> TimeCase | Skipped:
    seconds, size = seconds_of(row), row.count("micro_batch")
    model = row.text("model")
    if not is_judged(row) or seconds is None or size is None:
        return skipped(row, NAME, "not judged", counts=False)
    if model == "llama2-1B":
        return skipped(row, NAME, "no such model is supported", counts=False)
    if model != "vit_huge_patch14_224":
        return skipped(row, NAME, "the image size is not stated")
    if "PyTorch" not in row.text("optimizer"):
        return skipped(row, NAME, "an optimizer of another package")
    return TimeCase(
        row=row.name,
        source=NAME,
        family="vit",
        model=model,
        spec=WorkloadSpec(
            model=f"timm:{model}",
            model_options={"num_classes": 45},  # of RESISC45
            image_size=224,
            precision=Precision.AMP_BF16,
            optimizer="adamw",
            optimizer_options={"fused": True},
            compile=True,
        ),
        device="rtx-4070-ti-super",
        micro_batch=size,
        seconds=seconds,
        software=software_of(torch="2.4"),
        protocol=Protocol(windows=(1, 1), fresh_batch=True),
        machine="torchao RTX 4070 Ti SUPER",
        assumptions=ASSUMPTIONS,
    )
