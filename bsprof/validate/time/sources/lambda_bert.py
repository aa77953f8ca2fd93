"""Lambda's benchmark: BERT base fine-tuned on SQuAD by NVIDIA's example, on some 45 GPUs.

384 tokens, eager attention; FP16 is apex at level O2 with its fused Adam, FP32 has NVIDIA's
containers' TF32 on GPUs that know it, and an Adam with one loop over the parameters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bsprof.errors import UnknownDevice
from bsprof.hardware.catalogue import find_device
from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol
from bsprof.records import DeviceSpec, Precision, WorkloadSpec
from bsprof.validate.cases import Skipped
from bsprof.validate.rows import Row
from bsprof.validate.time.cases import TimeCase
from bsprof.validate.time.sources.common import is_judged, seconds_of, skipped

NAME = "lambda-bert"
FILE = "lambda_dlbench_train.csv"
ASSUMPTIONS = ("weights of the fp16 rows are held in fp16, without the masters in fp32",)

_NAMES = {
    "A100-PCIE-80GB": "a100-80gb-pcie",
    "A100-SXM-80GB": "a100-80gb-sxm",
    "A100 80GB PCIe": "a100-80gb-pcie",
    "H100 80GB HBM3": "h100-80gb-sxm",
    "H100 PCIe": "h100-80gb-pcie",
    "RTX 3080": "rtx-3080-10gb",
    "RTX 3080 Laptop GPU": "rtx-3080-laptop-16gb",
    "V100-SXM2-16GB": "v100-16gb-sxm",
    "V100-SXM2-32GB": "v100-32gb-sxm",
}
_FIRST_TF32 = (8, 0)


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG001
    """Every judged row of BERT as an update."""
    return [_case(row) for row in rows]


def _device(row: Row) -> DeviceSpec | None:
    published = row.text("gpu_variant").partition(" (")[0]
    try:
        return find_device(_NAMES.get(published, published))
    except UnknownDevice:
        return None


def _case(row: Row) -> TimeCase | Skipped:
    seconds, size, seq_len = seconds_of(row), row.count("micro_batch"), row.count("seq_len")
    if not is_judged(row) or seconds is None or size is None:
        return skipped(row, NAME, "several GPUs, or bound by the host or the loader", counts=False)
    if row.text("model") != "bert-base":
        return skipped(row, NAME, "no such model is supported", counts=False)
    device = _device(row)
    if device is None:
        return skipped(row, NAME, "no such device in the catalogue")
    version = re.match(r"(\d+)\.(\d+)", row.text("framework_version"))
    if version is None:
        return skipped(row, NAME, "torch is not stated")
    torch = (int(version[1]), int(version[2]))
    half = row.has("precision", "fp16")
    precision = Precision.FP16
    if not half:
        knows_tf32 = (device.compute_capability or (0, 0)) >= _FIRST_TF32
        precision = Precision.TF32 if knows_tf32 and torch >= (1, 7) else Precision.FP32
    return TimeCase(
        row=row.name,
        source=NAME,
        family="bert",
        model=f"bert-base {'fp16' if half else 'fp32'}",
        spec=WorkloadSpec(
            model="bsprof.validate.models.bert_squad:workload",
            model_options={"unfused": torch < (1, 12)},
            seq_len=seq_len,
            precision=precision,
            optimizer="adamw",
            optimizer_options={"fused": True} if half else {"foreach": False},
            clip_norm=1.0,
        ),
        device=device.name,
        micro_batch=size,
        seconds=seconds,
        software=software_of(torch=f"{torch[0]}.{torch[1]}"),
        protocol=Protocol(windows=(1, 1), fresh_batch=True),
        machine=f"lambda {row.text('gpu_variant')}",
        assumptions=ASSUMPTIONS,
    )
