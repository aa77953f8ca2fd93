"""zyr17/gpu-benchmark: ResNet-152 and an LSTM of one layer, everything in one type.

Adam, one synthetic batch for all steps, NCHW; the mean of many steps.
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

NAME = "zyr17"
FILE = "gpu24gb_zyr17.csv"
ASSUMPTIONS = (
    "the LSTM's input is as wide as its state, as the count of its parameters says",
    "convolutions are not autotuned",
)

_DEVICES = {"RTX 3090": "rtx-3090", "RTX 3090 Ti": "rtx-3090-ti", "RTX 4090": "rtx-4090"}
_PRECISIONS = {
    "fp32 (cudnn tf32 default on)": Precision.FP32,
    "fp16": Precision.FP16,
    "bf16": Precision.BF16,
}
_MODELS = {
    "resnet152": "torchvision:resnet152",
    "lstm-1x256": "bsprof.validate.models.recurrent:workload",
}


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG001
    """Every judged row as an update."""
    return [_case(row) for row in rows]


def _case(row: Row) -> TimeCase | Skipped:
    seconds, size, model = seconds_of(row), row.count("micro_batch"), row.text("model")
    if not is_judged(row) or seconds is None or size is None:
        return skipped(row, NAME, "memory alone, or fp64", counts=False)
    device = _DEVICES.get(row.text("gpu_variant"))
    precision = _PRECISIONS.get(row.text("precision"))
    if device is None or precision is None or model not in _MODELS:
        return skipped(row, NAME, "no settings that are known here")
    length = row.count("seq_len")
    return TimeCase(
        row=row.name,
        source=NAME,
        family="lstm" if "lstm" in model else "resnet",
        model=f"{model} {precision.value}",
        spec=WorkloadSpec(
            model=_MODELS[model],
            image_size=None if "lstm" in model else row.count("image_size"),
            seq_len=length if "lstm" in model else None,
            precision=precision,
            optimizer="adam",
        ),
        device=device,
        micro_batch=size,
        seconds=seconds,
        software=software_of(torch="2.3", cuda="11.8"),
        machine=f"zyr17 {device}",
        protocol=Protocol(windows=(1, 1)),
        assumptions=ASSUMPTIONS,
    )
