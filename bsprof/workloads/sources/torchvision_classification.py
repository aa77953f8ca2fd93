"""Classifiers of torchvision, of images and of clips: cross entropy, auxiliary heads included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.data import Images, image_batches
from bsprof.workloads.sources.torchvision_builder import Builder
from bsprof.workloads.workload import Workload

CLASSES = 1000
CLIP_CLASSES = 400  # Kinetics-400
TRANSFORMER_SIZE = 224
"""Where torchvision builds a transformer for one size, the size it takes unless told."""

AUX_WEIGHTS = {"googlenet": 0.3, "inception_v3": 0.4}
"""Share of an auxiliary classifier's loss. 0.3: Szegedy et al. 2015, arXiv 1409.4842, section 5;
0.4: TF-Slim's `train_image_classifier.py`."""

SIZE_ARGUMENTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "vision_transformer": lambda size: {"image_size": size},
    "maxvit": lambda size: {"input_size": (size, size)},
}
"""Modules of torchvision whose models are built for one image size: how they are told it."""

FIXED_SIZE = "video.mvit"
"""A module of torchvision whose functions leave no choice of the size."""

FRAMES = {"video.s3d": 128, "video.swin_transformer": 32}
"""Frames of a clip by torchvision's notes on its weights (`clip_len`); 16 for the others."""
OTHER_FRAMES = 16


def image_workload(builder: Builder, spec: WorkloadSpec) -> Workload:
    """Images (b, 3, size, size) and classes (b,).

    The size is the one that the model's first published weights were made for, 224 for the
    transformers that are built for one size, or `--image-size`. Labels are drawn from the
    model's classes; the loss is the mean cross entropy, with those of GoogLeNet's and
    Inception's auxiliary classifiers added in training.
    """
    fixed = builder.package in SIZE_ARGUMENTS
    default = TRANSFORMER_SIZE if fixed else builder.crop_size()
    size = default if spec.image_size is None else spec.image_size
    classes = builder.setting("num_classes", CLASSES)
    return _workload(builder, size, image_batches((3, size, size), classes, spec.seed))


def video_workload(builder: Builder, spec: WorkloadSpec) -> Workload:
    """Clips (b, 3, frames, size, size) and classes (b,).

    Frames and size are those that torchvision evaluates its weights with; `--image-size` sets the
    size, save for MViT, which is built for one.
    """
    frames = FRAMES.get(builder.package, OTHER_FRAMES)
    size = builder.crop_size() if spec.image_size is None else spec.image_size
    classes = builder.setting("num_classes", CLIP_CLASSES)
    return _workload(builder, size, image_batches((3, frames, size, size), classes, spec.seed))


def _workload(builder: Builder, size: int, batch: Callable[..., Images]) -> Workload:
    settings = {}
    twice = {"image_size", "input_size"} & set(builder.options)
    if builder.package in SIZE_ARGUMENTS and twice:
        raise UsageError(
            f"--model-option {min(twice)} would not change the images",
            next_step="give the size as --image-size",
        )
    if builder.package in SIZE_ARGUMENTS:
        settings = SIZE_ARGUMENTS[builder.package](size)
    if builder.name in AUX_WEIGHTS:
        # Its default is to change in torchvision, which warns until it is chosen.
        settings["init_weights"] = False
    aux_weight = AUX_WEIGHTS.get(builder.name, 0.0)
    return Workload(
        model=lambda: builder.build(**settings),
        batch=batch,
        loss=lambda model, images: loss(model, images, aux_weight),
        uses_image_size=builder.package != FIXED_SIZE,
    )


def loss(model: nn.Module, batch: Images, aux_weight: float) -> Tensor:
    """Mean cross entropy, plus the weighted ones of auxiliary classifiers."""
    images, labels = batch
    outputs = model(images)
    if isinstance(outputs, Tensor):
        return F.cross_entropy(outputs, labels)
    main, *others = (output for output in outputs if output is not None)
    total = F.cross_entropy(main, labels)
    for other in others:
        total = total + aux_weight * F.cross_entropy(other, labels)
    return total
