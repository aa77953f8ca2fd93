"""timm's inference benchmark: forward passes on an RTX 3090, 4090 and 5090.

Autocast to fp16 over fp32 weights, without gradients, `cudnn.benchmark`, one synthetic batch;
NCHW or NHWC, eager or compiled. The rows of the two layouts have batches of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol
from bsprof.records import Mode, Precision, WorkloadSpec
from bsprof.validate.cases import Skipped
from bsprof.validate.rows import Row
from bsprof.validate.sources.timm_names import family_of, other_network
from bsprof.validate.time.cases import TimeCase, TimeQuantity
from bsprof.validate.time.places import place_of
from bsprof.validate.time.sources.common import seconds_of, skipped
from bsprof.validate.time.sources.published_gmacs import architecture, gmacs_by_model

NAME = "timm-inference"
FILE = "timm_infer_rtx4090_3090_5090.csv"
ASSUMPTIONS = ("today's timm builds the network that was measured in 2024 and 2025",)

_DEVICES = {"RTX 3090": "rtx-3090", "RTX 4090": "rtx-4090", "RTX 5090": "rtx-5090"}
_CUDA = {"cu12.4": "12.4", "cu12.8": "12.8", "cu13.0": "13.0"}


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:
    """Every row as a forward pass."""
    path = place_of(folder, FILE)
    gmacs = gmacs_by_model(path) if path is not None else {}
    return [_case(row, gmacs) for row in rows]


def _case(row: Row, gmacs: dict[tuple[str, int], tuple[float, ...]]) -> TimeCase | Skipped:
    seconds, size = seconds_of(row), row.count("micro_batch")
    side, device = row.count("image_size"), _DEVICES.get(row.text("gpu"))
    name = architecture(row.text("model"))
    if seconds is None or size is None or side is None or device is None:
        return skipped(row, NAME, "no settings that are known here", counts=False)
    problem = other_network(name)
    if problem is not None:
        return skipped(row, NAME, problem, counts=False)
    version, cuda = row.text("framework_version").split()
    compiled = row.text("compile") == "True"
    set_name = f"timm-{device.removeprefix('rtx-')}-infer"
    return TimeCase(
        row=row.name,
        source=NAME,
        family=family_of(name),
        model=name,
        spec=WorkloadSpec(
            model=f"timm:{name}",
            image_size=side,
            precision=Precision.AMP_FP16,
            channels_last="NHWC" in row.text("framework"),
            cudnn_benchmark=True,
            compile=compiled,
            mode=Mode.INFER,
        ),
        device=device,
        micro_batch=size,
        seconds=seconds,
        quantity=TimeQuantity.FORWARD,
        software=software_of(torch=f"{version[0]}.{version[2]}", cuda=_CUDA[cuda]),
        protocol=Protocol(windows=(1,)),
        machine=f"timm {device}",
        set_name=f"{set_name}-compiled" if compiled else set_name,
        published_gmacs=gmacs.get((name, side), ()),
        assumptions=ASSUMPTIONS,
    )
