"""A GPU benchmark's table of device memory (xiaoran007/GPU-Insights): four models, many sizes.

Settings as in its runner: fused SGD without momentum, autocast (fp16 with a gradient scaler),
gradients dropped before the forward pass, TF32 products, all batches on the device from the start.
What NVML reported after each step: the context and what the allocator had reserved by then.
"""

from __future__ import annotations

import re

from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol, ZeroGrad
from bsprof.records import Precision, WorkloadSpec
from bsprof.validate.cases import Case, Kind, Measured, Skipped
from bsprof.validate.rows import Row

NAME = "gpu-insights"
FILE = "gpu_insights_mem.csv"
MODEL = "bsprof.validate.models.vision:workload"

_DEVICES = {"A100": "a100-40gb-sxm", "H100": "h100-80gb-sxm"}
_PRECISIONS = {
    "fp32": Precision.TF32,
    "amp_fp16": Precision.AMP_FP16,
    "amp_bf16": Precision.AMP_BF16,
}
_SAMPLES = re.compile(r"preloaded on the GPU: (\d+) samples")

ASSUMPTIONS = (
    "not compiled, though the benchmark can compile: as the rows say",
    "torch not stated: 2.6; H100 taken as the SXM of 80 GB",
)


def read(row: Row) -> Case | Skipped:
    """A row as a peak of the whole device."""
    model, device = row.text("model"), _DEVICES.get(row.text("gpu"))
    peak, size, side = row.peak_bytes, row.count("micro_batch"), row.count("image_size")
    precision = _PRECISIONS.get(row.text("precision"))
    found = _SAMPLES.search(row.text("notes"))
    problem, counts = None, True
    if None in (peak, size, side) or found is None or device is None or precision is None:
        problem = "no settings that are known here"
    elif "NEAR CAPACITY" in row.text("notes"):
        problem, counts = "near the capacity, which limited workspaces", False
    if problem is not None:
        return Skipped(row=row.name, source=NAME, model=model, reason=problem, counts=counts)
    assert peak is not None
    assert size is not None
    assert side is not None
    assert found is not None
    assert device is not None
    assert precision is not None
    preloaded = int(found[1]) - size  # one batch is part of the step itself
    return Case(
        row=row.name,
        source=NAME,
        family=model,
        model=f"{model} {precision.value} {row.text('gpu')}",
        spec=WorkloadSpec(
            model=MODEL,
            model_options={"name": model},
            precision=precision,
            optimizer="sgd",
            optimizer_options={"fused": True},
            channels_last=model != "vit-b-16",
        ),
        device=device,
        micro_batch=size,
        software=software_of(torch="2.6"),
        protocol=Protocol(windows=(1, 1), zero_grad=ZeroGrad.BEFORE_FORWARD),
        measured=Measured(kind=Kind.DEVICE, bytes=peak),
        resident_bytes=preloaded * 3 * side * side * 4,
        assumptions=ASSUMPTIONS,
    )
