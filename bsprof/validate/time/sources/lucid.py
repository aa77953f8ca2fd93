"""Lucid's profiles of single jobs on an RTX 3090: ResNet-50 and BERT, fp32 and autocast."""

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

NAME = "lucid"
FILE = "lucid_rtx3090.csv"
ASSUMPTIONS = (
    "BERT is the base model on samples of 384 tokens, SQuAD's usual length, with AdamW",
    "ResNet-50 is torchvision's, with SGD and momentum, autotuned; torch 1.9",
)
_OTHERS = {"DCGAN", "MobileNetV2"}
"""Written by the benchmark's authors for small images."""


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG001
    """Every judged row as an update."""
    return [_case(row) for row in rows]


def _case(row: Row) -> TimeCase | Skipped:
    seconds, size, model = seconds_of(row), row.count("micro_batch"), row.text("model")
    if not is_judged(row) or seconds is None or size is None:
        return skipped(row, NAME, "bound by the loader", counts=False)
    if model in _OTHERS:
        return skipped(row, NAME, "no such model is supported", counts=False)
    precision = Precision.AMP_FP16 if row.has("precision", "amp") else Precision.FP32
    if model == "BERT":
        spec = WorkloadSpec(
            model="bsprof.validate.models.bert_squad:workload",
            model_options={"unfused": True},
            seq_len=384,
            precision=precision,
            optimizer="adamw",
        )
    else:
        spec = WorkloadSpec(
            model="torchvision:resnet50",
            image_size=224,
            precision=precision,
            optimizer="sgd",
            optimizer_options={"momentum": 0.9},
            cudnn_benchmark=True,
        )
    return TimeCase(
        row=row.name,
        source=NAME,
        family=model.lower().rstrip("0123456789"),
        model=f"{model} {precision.value}",
        spec=spec,
        device="rtx-3090",
        micro_batch=size,
        seconds=seconds,
        software=software_of(torch="1.9"),
        protocol=Protocol(windows=(1, 1), fresh_batch=True),
        machine="lucid RTX 3090",
        assumptions=ASSUMPTIONS,
    )
