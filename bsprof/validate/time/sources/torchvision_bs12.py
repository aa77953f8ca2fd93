"""ryujaehun/pytorch-gpu-benchmark: torchvision's models, 12 images, forward and backward alone.

`cudnn.benchmark`, weights in one type, no optimizer. What is timed begins with zeroing the
gradients, by one kernel a parameter, and the copy of the images to the device.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol, ZeroGrad
from bsprof.records import Precision, WorkloadSpec
from bsprof.validate.cases import Skipped
from bsprof.validate.rows import Row
from bsprof.validate.time.cases import TimeCase, TimeQuantity
from bsprof.validate.time.sources.common import is_judged, seconds_of, skipped

NAME = "torchvision-bs12"
FILE = "pytorch_gpu_benchmark_bs12.csv"
ASSUMPTIONS = (
    "torch not stated: 1.4 in 2019 and 2020, 1.7 in the container of the A100",
    "the copy of 12 images to the device is not predicted",
)

_DEVICES = {
    "A100-SXM4-40GB": "a100-40gb-sxm",
    "GeForce RTX 2080 Ti": "rtx-2080-ti",
    "TITAN RTX": "titan-rtx",
    "TITAN Xp": "titan-xp",
}
_FAMILY = re.compile(r"(wide_)?[a-z]+")


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG001
    """Every training row as a micro-step."""
    return [_case(row) for row in rows]


def _case(row: Row) -> TimeCase | Skipped:
    seconds, size, model = seconds_of(row), row.count("micro_batch"), row.text("model")
    device = _DEVICES.get(row.text("gpu_variant"))
    if not is_judged(row) or seconds is None or size is None or device is None:
        return skipped(row, NAME, "inference, which is not judged", counts=False)
    precision = Precision.FP16 if row.has("precision", "fp16") else Precision.FP32
    if row.has("precision", "tf32"):
        precision = Precision.TF32
    family = _FAMILY.match(model)
    return TimeCase(
        row=row.name,
        source=NAME,
        family=family[0] if family else model,
        model=model,
        spec=WorkloadSpec(
            model=f"torchvision:{model}",
            image_size=row.count("image_size"),
            precision=precision,
            optimizer="sgd",
            cudnn_benchmark=True,
        ),
        device=device,
        micro_batch=size,
        seconds=seconds,
        quantity=TimeQuantity.MICRO_STEP,
        software=software_of(torch="1.7" if device.startswith("a100") else "1.4"),
        protocol=Protocol(windows=(1, 1), zero_grad=ZeroGrad.BEFORE_FORWARD, set_to_none=False),
        machine=f"torchvision-bs12 {device}",
        assumptions=ASSUMPTIONS,
    )
