"""`torchvision:NAME`: a model of the user's torchvision, with random weights and its own loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.sources import (
    torchvision_classification,
    torchvision_detection,
    torchvision_flow,
    torchvision_segmentation,
)
from bsprof.workloads.sources.packages import find_name, import_package, refuse_reserved
from bsprof.workloads.sources.torchvision_builder import Builder
from bsprof.workloads.workload import Workload

KINDS: Mapping[str, Callable[[Builder, WorkloadSpec], Workload]] = {
    "detection": torchvision_detection.workload,
    "segmentation": torchvision_segmentation.workload,
    "optical_flow": torchvision_flow.workload,
    "video": torchvision_classification.video_workload,
}
"""Packages within `torchvision.models`; what stands in none of them classifies images."""

_WEIGHTS = "the weights are random; leave it out"
RESERVED = {"weights": _WEIGHTS, "weights_backbone": _WEIGHTS, "progress": _WEIGHTS}
"""Arguments of torchvision's functions that are no option here, and why."""


def workload(spec: WorkloadSpec, name: str) -> Workload:
    """The workload of `--model torchvision:NAME`: what it is trained on follows from its kind.

    `--model-option`s are keyword arguments of torchvision's function of that name.

    Raises:
        UsageError: no such model (near ones are named), an option that it does not take, or a
            quantized model, which cannot be trained.
        WorkloadError: torchvision is not installed, or does not go with the torch beside it.
    """
    torchvision = import_package("torchvision", spec.model)
    models = torchvision.models
    refuse_reserved(spec.model, spec.model_options, RESERVED)
    known = models.list_models()
    if name.lower() not in known:
        raise UsageError(
            f"torchvision {torchvision.__version__} has no model {name!r}",
            found=find_name(name, known),
            next_step="torchvision.models.list_models() lists them",
        )
    builder = Builder(
        model=spec.model, name=name.lower(), options=spec.model_options, models=models
    )
    kind = builder.package.partition(".")[0]
    if kind == "quantization":
        raise UsageError(
            f"{spec.model} is a quantized model, which cannot be trained",
            next_step=f"take torchvision:{builder.name.removeprefix('quantized_')}",
        )
    return KINDS.get(kind, torchvision_classification.image_workload)(builder, spec)
