"""ResNets and EfficientNet-B0 on ImageNet, one GPU each: four sources with public settings.

NVIDIA's DeepLearningExamples (AMP in NHWC, TF32 and FP32 in NCHW, steps accumulated), Oneflow's
runs of these (DLPerf), gavel's profiles and Zeus's traces of torchvision's ResNet-50, and the cases
of FlagPerf that say which network they train. Each reads its own file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol
from bsprof.records import Precision, Scalar, WorkloadSpec
from bsprof.validate.cases import Skipped
from bsprof.validate.rows import Row
from bsprof.validate.time.cases import TimeCase
from bsprof.validate.time.sources.common import is_judged, seconds_of, skipped

_SGD: Mapping[str, Scalar] = {"momentum": 0.9, "weight_decay": 1e-4}
_RMSPROP: Mapping[str, Scalar] = {"momentum": 0.9, "weight_decay": 1e-5}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRuns:
    """A source whose rows are image classification, and others that are told with a reason.

    Attributes:
        NAME, FILE, ASSUMPTIONS: As of every source.
        models: Published names as workloads.
        devices: Published names as the catalogue's.
        unsupported: Published names that no supported package has.
        torch: Release.
        full: What fp32 means there.
        optimizer: By workload; SGD with momentum where it is not named.
        autotuned: Whether `cudnn.benchmark` is on.
        channels_last: Whether rows of half precision are NHWC: what the row's precision must say.
    """

    NAME: str
    FILE: str
    ASSUMPTIONS: tuple[str, ...]
    models: Mapping[str, str]
    devices: Mapping[str, str]
    unsupported: frozenset[str] = frozenset()
    torch: str
    full: Precision
    optimizer: Mapping[str, tuple[str, Mapping[str, Scalar]]] = field(default_factory=dict)
    autotuned: bool = True

    def read(self, rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG002
        """Every judged row as an update."""
        return [self._case(row) for row in rows]

    def _case(self, row: Row) -> TimeCase | Skipped:
        seconds, size, model = seconds_of(row), row.count("micro_batch"), row.text("model")
        if not is_judged(row) or seconds is None or size is None:
            return skipped(row, self.NAME, "not judged", counts=False)
        if model in self.unsupported:
            return skipped(row, self.NAME, "no such model is supported", counts=False)
        if model not in self.models:
            return skipped(row, self.NAME, f"settings of {model!r} are not stated")
        device = self.devices.get(row.text("gpu_variant"))
        if device is None:
            return skipped(row, self.NAME, "no such device in the catalogue")
        precision = self._precision(row)
        name, options = self.optimizer.get(model, ("sgd", _SGD))
        return TimeCase(
            row=row.name,
            source=self.NAME,
            family=model.partition("-")[0].rstrip("0123456789"),
            model=f"{model} {precision.value}",
            spec=WorkloadSpec(
                model=self.models[model],
                image_size=row.count("image_size"),
                seq_len=row.count("seq_len"),
                precision=precision,
                optimizer=name,
                optimizer_options=options,
                channels_last=row.has("precision", "nhwc"),
                cudnn_benchmark=self.autotuned,
            ),
            device=device,
            micro_batch=size,
            seconds=seconds,
            accumulation_steps=row.count("grad_accum") or 1,
            software=software_of(torch=self.torch),
            protocol=Protocol(windows=(1, 1), fresh_batch=True),
            machine=f"{self.NAME} {row.text('gpu_variant')}",
            assumptions=self.ASSUMPTIONS,
        )

    def _precision(self, row: Row) -> Precision:
        if row.has("precision", "amp", "fp16"):
            return Precision.AMP_FP16
        return Precision.TF32 if row.has("precision", "tf32") else self.full


_V100 = {
    "V100-16GB-SXM (DGX-1)": "v100-16gb-sxm",
    "V100-32GB-SXM (DGX-1)": "v100-32gb-sxm",
    "V100-32GB-SXM (DGX-2)": "v100-32gb-sxm",
}

nvidia = ImageRuns(
    NAME="nvidia-examples",
    FILE="nvidia_deeplearningexamples_train.csv",
    ASSUMPTIONS=(
        "batches and accumulation as in the examples' configuration files",
        "the catalogue's and timm's networks stand for NVIDIA's; torch 1.7",
        "what is read from disk does not hold the device up",
    ),
    models={
        "resnet50": "torchvision:resnet50",
        "se-resnext101-32x4d": "timm:seresnext101_32x4d",
        "efficientnet-b0": "efficientnet-b0",
        "ncf-neumf": "ncf-ml-20m",
    },
    devices={
        "A100-80GB-SXM (DGX A100)": "a100-80gb-sxm",
        "A100-40GB-SXM (DGX A100)": "a100-40gb-sxm",
        **_V100,
    },
    unsupported=frozenset(
        {
            "gnmt",
            "transformer-xl-base",
            "dlrm-small",
            "efficientnet-widese-b0",
            "efficientnet-widese-b4",
            "jasper-10x5",
            "quartznet-15x5",
            "nnunet-2",
            "nnunet-3",
            "ssd300-resnet50",
        }
    ),
    torch="1.7",
    full=Precision.FP32,
    optimizer={
        "efficientnet-b0": ("rmsprop", _RMSPROP),
        "ncf-neumf": ("adam", {}),
    },
)

dlperf = ImageRuns(
    NAME="dlperf",
    FILE="dlperf_v100.csv",
    ASSUMPTIONS=("torch of NVIDIA's container 20.03: 1.5", "BERT predicts masked tokens alone"),
    models={"resnet50": "torchvision:resnet50", "bert-base": "bert-base"},
    devices={"V100-SXM2-16GB": "v100-16gb-sxm"},
    unsupported=frozenset({"gpt L=12 d=768 V=51200", "gpt L=16 d=1536 V=51200"}),
    torch="1.5",
    full=Precision.FP32,
    optimizer={"bert-base": ("adam", {"foreach": False})},
)

gavel = ImageRuns(
    NAME="gavel",
    FILE="gavel_throughputs.csv",
    ASSUMPTIONS=("torchvision's example: SGD with momentum, autotuned convolutions; torch 1.4",),
    models={"resnet50": "torchvision:resnet50"},
    devices={"P100 16GB": "p100-16gb-pcie", "V100 16GB (AWS p3)": "v100-16gb-sxm"},
    unsupported=frozenset(
        {
            "autoencoder-recoder ml20m",
            "lstm-lm wikitext2",
            "transformer (attention-is-all-you-need-pytorch)",
        }
    ),
    torch="1.4",
    full=Precision.FP32,
)

zeus = ImageRuns(
    NAME="zeus",
    FILE="zeus_epoch_time.csv",
    ASSUMPTIONS=(
        "fp32 is torch's default; torch 1.10",
        "what is read from disk does not hold the device up",
        "its ShuffleNet for images of 32 pixels is another network than torchvision's",
    ),
    models={"resnet50": "torchvision:resnet50"},
    devices={
        "V100 (32GB? CloudLab/AWS)": "v100-32gb-sxm",
        "A40 48GB": "a40",
        "P100 16GB": "p100-16gb-pcie",
        "Quadro RTX 6000 24GB": "quadro-rtx-6000",
    },
    unsupported=frozenset({"shufflenetv2"}),
    torch="1.10",
    full=Precision.FP32,
    optimizer={"resnet50": ("adadelta", {})},
    autotuned=False,
)

flagperf = ImageRuns(
    NAME="flagperf",
    FILE="flagperf_a100.csv",
    ASSUMPTIONS=("fp32 is torch's default of the time, TF32 allowed; torch 1.10",),
    models={"resnet50": "torchvision:resnet50", "mobilenetv2": "torchvision:mobilenet_v2"},
    devices={"A100-SXM4-40GB": "a100-40gb-sxm"},
    unsupported=frozenset({"bigtransfer", "cpm", "dlrm", "glm", "moflow"}),
    torch="1.10",
    full=Precision.TF32,
    autotuned=False,
)
