"""kai271828/gpu_benchmark: ResNet-50 and ViT-B/16 of torchvision on many GPUs, eager and compiled.

AdamW, synthetic images, `cudnn.benchmark`, NCHW. Batches follow from the memory of the GPU by the
rule of the benchmark's code.
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

NAME = "kai"
FILE = "gpu_benchmark_kai.csv"
ASSUMPTIONS = ("batches are inferred from the benchmark's code", "torch 2.5, the least it takes")

_DEVICES = {
    "GTX 1080 Ti": "gtx-1080-ti",
    "RTX 2080 Ti": "rtx-2080-ti",
    "RTX 3060": "rtx-3060-12gb",
    "RTX 3080": "rtx-3080-10gb",
    "RTX 3090": "rtx-3090",
    "RTX 3090 Ti": "rtx-3090-ti",
    "RTX 4090": "rtx-4090",
    "RTX A6000": "rtx-a6000",
    "Tesla T4": "t4",
    "Tesla V100": "v100-16gb-sxm",
}
_PRECISIONS = {
    "fp32": Precision.FP32,
    "tf32": Precision.TF32,
    "amp_fp16": Precision.AMP_FP16,
    "amp_bf16": Precision.AMP_BF16,
}


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG001
    """Every row as an update."""
    return [_case(row) for row in rows]


def _case(row: Row) -> TimeCase | Skipped:
    seconds, size, model = seconds_of(row), row.count("micro_batch"), row.text("model")
    device = _DEVICES.get(row.text("gpu_variant"))
    precision = _PRECISIONS.get(row.text("precision"))
    if not is_judged(row) or seconds is None or size is None:
        return skipped(row, NAME, "no time published", counts=False)
    if device is None or precision is None:
        return skipped(row, NAME, "no such device or precision here")
    compiled = row.text("compile") == "True"
    return TimeCase(
        row=row.name,
        source=NAME,
        family=model.partition("_")[0],
        model=f"{model} {precision.value}{' compiled' if compiled else ''}",
        spec=WorkloadSpec(
            model=f"torchvision:{model}",
            image_size=row.count("image_size"),
            precision=precision,
            optimizer="adamw",
            compile=compiled,
            cudnn_benchmark=True,
        ),
        device=device,
        micro_batch=size,
        seconds=seconds,
        software=software_of(torch="2.5"),
        protocol=Protocol(windows=(1, 1), fresh_batch=True),
        machine=f"kai {device}",
        assumptions=ASSUMPTIONS,
    )
