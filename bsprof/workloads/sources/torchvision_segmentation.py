"""Semantic segmentation of torchvision: cross entropy over pixels, as its own recipes do it."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.data import Images
from bsprof.workloads.sources.torchvision_builder import Builder
from bsprof.workloads.workload import Workload

CLASSES = 21  # PASCAL VOC with its background
IMAGE_SIZE = 480
AUX_WEIGHT = 0.5
"""Crop size and share of the auxiliary loss: torchvision's `references/segmentation`."""
WITHOUT_AUX = "segmentation.lraspp"


def workload(builder: Builder, spec: WorkloadSpec) -> Workload:
    """Images (b, 3, size, size) and a class for every pixel, (b, size, size).

    As in torchvision's recipes the models have their auxiliary head, whose loss counts half
    (`--model-option aux_loss=false` builds them without); in evaluation its output is computed
    and left out of the loss. In training DeepLab cannot take a single image: it normalises one
    value per image and channel.
    """
    size = IMAGE_SIZE if spec.image_size is None else spec.image_size
    classes = builder.setting("num_classes", CLASSES)
    settings = {} if builder.package == WITHOUT_AUX else {"aux_loss": True}
    return Workload(
        model=lambda: builder.build(**settings),
        batch=pixel_batches(size, classes, spec.seed),
        loss=loss,
        uses_image_size=True,
    )


def pixel_batches(size: int, classes: int, seed: int) -> Callable[[int, torch.device], Images]:
    """A batch function: normal images (b, 3, size, size) and classes (b, size, size)."""
    generator = torch.Generator().manual_seed(seed)

    def batch(micro_batch_size: int, device: torch.device) -> Images:
        images = torch.randn(micro_batch_size, 3, size, size, generator=generator)
        labels = torch.randint(classes, (micro_batch_size, size, size), generator=generator)
        return images.to(device), labels.to(device)

    return batch


def loss(model: nn.Module, batch: Images) -> Tensor:
    """Mean cross entropy over all pixels, plus half the auxiliary head's in training."""
    images, labels = batch
    outputs = model(images)
    total = F.cross_entropy(outputs["out"], labels)
    if model.training and "aux" in outputs:
        total = total + AUX_WEIGHT * F.cross_entropy(outputs["aux"], labels)
    return total
