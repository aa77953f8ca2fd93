"""Sia's step times: training under AdaptDL at several sizes, PyTorch 1.9.

AdaptDL's statistics of the gradient add 90 to 175 ms to every step. They do not depend on the size:
the smallest size of each sweep tells them, and is not scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bsprof.predict.software import software_of
from bsprof.records import Precision, Scalar, WorkloadSpec
from bsprof.validate.cases import Skipped
from bsprof.validate.rows import Row
from bsprof.validate.time.cases import Calibrates, TimeCase
from bsprof.workloads.catalogue.entries import entries

NAME = "sia"
FILE = "sia_sosp23_steptime.csv"
ASSUMPTIONS = (
    "the smallest size of a sweep tells what AdaptDL adds to every step",
    "BERT's samples are padded to 384 tokens; its linear layers add their bias apart (torch 1.9)",
    "ResNet-50 runs with cudnn.benchmark, channels first, momentum 0.9",
    "NeuMF has 32 factors and a network of 256-128-64-32 for MovieLens 1M, AdaptDL's defaults",
)

ADAPTDL_S = 0.13
"""Between the 90 and 175 ms that AdaptDL's statistics of the gradient add to a step."""

_DEVICES = {
    ("A100", "40"): "a100-40gb-sxm",
    ("V100", "32"): "v100-32gb-sxm",
    ("T4", "16"): "t4",
    ("RTX 2080 Ti", "11"): "rtx-2080-ti",
    ("Quadro RTX 6000", "24"): "quadro-rtx-6000",
}
_UNKNOWN = {
    "deepspeech2": "the lengths of its samples vary and are not stated",
    "yolov3": "its image size changes from batch to batch",
}
"""Models that no supported package or catalogue has, and why their rows are no single workload."""

_NEUMF: Mapping[str, Scalar] = {"factors": 32, "widths": "256,128,64,32"}


def read(rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG001
    """Every row of one GPU as an update."""
    smallest: dict[str, tuple[int, str]] = {}
    for row in rows:
        size = row.count("micro_batch")
        if row.count("n_gpus") == 1 and size is not None:
            found = (size, row.name)
            smallest[_sweep(row)] = min(smallest.get(_sweep(row), found), found)
    calibrating = {name for _, name in smallest.values()}
    return [_case(row, calibrates=row.name in calibrating) for row in rows]


def _sweep(row: Row) -> str:
    return f"{row.text('model')} on {row.text('gpu')} {row.text('gpu_mem_gb')} GB"


def _case(row: Row, *, calibrates: bool) -> TimeCase | Skipped:
    model = row.text("model")
    size, milliseconds = row.count("micro_batch"), row.number("step_ms")

    def skipped(reason: str, *, counts: bool = True) -> Skipped:
        return Skipped(row=row.name, source=NAME, model=model, reason=reason, counts=counts)

    if row.count("n_gpus") != 1:
        return skipped("several GPUs, whose link is not stated", counts=False)
    if model in _UNKNOWN:
        return skipped(_UNKNOWN[model], counts=False)
    device = _DEVICES.get((row.text("gpu"), row.text("gpu_mem_gb")))
    if device is None:
        return skipped(f"no device {row.text('gpu_variant')!r} in the catalogue")
    if size is None or milliseconds is None:
        return skipped("no time published", counts=False)
    spec, gmacs, set_name = _workload(row)
    if spec is None:
        return skipped("its architecture is not stated")
    return TimeCase(
        row=row.name,
        source=NAME,
        family=row.text("model_family"),
        model=model,
        spec=spec,
        device=device,
        micro_batch=size,
        seconds=milliseconds / 1e3,
        software=software_of(torch="1.9"),
        machine=f"sia {row.text('gpu')}",
        set_name=set_name,
        sweep=_sweep(row),
        published_gmacs=gmacs,
        framework_s=ADAPTDL_S,
        calibrates=Calibrates.POINT if calibrates else Calibrates.NOTHING,
        assumptions=ASSUMPTIONS,
    )


def _workload(row: Row) -> tuple[WorkloadSpec | None, tuple[float, ...], str]:
    """What is trained, the published multiplications of a sample, and the scored set."""
    match row.text("model"):
        case "bert-base-uncased":
            length = row.count("seq_len") or 384
            dense, pairs = 85_054_464, 2 * 12 * 768 * length  # weights of 12 layers; attention
            return (
                WorkloadSpec(
                    model="bsprof.validate.models.bert_squad:workload",
                    model_options={"unfused": True},
                    seq_len=length,
                    precision=_precision(row),
                    optimizer="adamw",
                ),
                (length * (dense + pairs) / 1e9,),
                "sia-bert",
            )
        case "resnet50":
            resnet_gmacs = (entries()["resnet50"].forward_flops or 0.0) / 2e9
            return (
                WorkloadSpec(
                    model="resnet50",
                    image_size=row.count("image_size"),
                    precision=_precision(row),
                    optimizer="sgd",
                    optimizer_options={"momentum": 0.9},
                    cudnn_benchmark=True,
                ),
                (resnet_gmacs,),
                "sia-resnet50",
            )
        case "neumf":
            return (
                WorkloadSpec(
                    model="ncf-ml-1m",
                    model_options=_NEUMF,
                    precision=_precision(row),
                    optimizer="adam",
                ),
                (),
                "",
            )
    return None, (), ""


def _precision(row: Row) -> Precision:
    """As published: autocast, or fp32 with what torch 1.9 allowed by default."""
    if row.has("precision", "amp"):
        return Precision.AMP_FP16
    return Precision.TF32 if row.has("precision", "tf32") else Precision.FP32
