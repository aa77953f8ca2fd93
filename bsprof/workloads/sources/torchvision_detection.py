"""Detectors of torchvision: images of their own, boxes, masks and key points, its own losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import Mode, Note, WorkloadSpec
from bsprof.workloads.sources.torchvision_builder import Builder
from bsprof.workloads.workload import Workload

CLASSES = 91  # COCO's numbering, with the background
KEYPOINT_CLASSES = 2  # a person, or none
KEYPOINTS = 17  # COCO's
OBJECTS = 8
"""Objects in an image. COCO has 7.7 on average: Lin et al. 2014, arXiv 1405.0312, section 5."""
SMALLEST_BOX = 0.05  # of the image's side; boxes are never empty

IMAGE_SIZE = 800
"""Shorter side to which torchvision's detectors scale an image by default."""
IMAGE_SIZES = {"fasterrcnn_mobilenet_v3_large_320_fpn": 320}
FIXED_SIZES = {"ssd300_vgg16": 300, "ssdlite320_mobilenet_v3_large": 320}
"""Detectors with another size, and those that scale every image to the one they are built for."""

WITHOUT_LOSS = Note(
    code="no-loss-in-evaluation",
    message="a detector has no loss in evaluation: its detections are made and their scores "
    "summed; with random weights fewer pass the threshold than with trained ones",
)

Samples = tuple[list[Tensor], list[dict[str, Tensor]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenes:
    """What random images and their targets look like.

    Attributes:
        size: Pixels per side.
        classes: Classes with the background, which is class 0.
        keypoints: Key points of an object; None where they are not learned.
        masks: Whether objects have masks.
    """

    size: int
    classes: int
    keypoints: int | None
    masks: bool


def workload(builder: Builder, spec: WorkloadSpec) -> Workload:
    """A list of images and a list of targets with 8 random boxes in each image.

    Images are square, with the side to which the model scales them by default; `--image-size`
    sets both and cannot be given to SSD, which is built for one size. In training the loss is
    the sum of the model's own losses.

    In evaluation a detector returns detections and has no loss: the number is the sum of their
    scores. With random weights few boxes pass the score threshold, so what comes after it costs
    less than with trained ones.

    Raises:
        UsageError: an image size beside an option that sets one too.
    """
    settings: dict[str, Any] = {}
    size = FIXED_SIZES.get(builder.name, IMAGE_SIZES.get(builder.name, IMAGE_SIZE))
    scaled = builder.name not in FIXED_SIZES
    if spec.image_size is not None and scaled:
        _refuse_two_sizes(builder)
        size = spec.image_size
        settings = {"min_size": size, "max_size": size}
    return Workload(
        model=lambda: builder.build(**settings),
        batch=scene_batches(_scenes(builder, size), spec.seed),
        loss=loss,
        size=lambda batch: len(batch[0]),
        uses_image_size=scaled,
        notes=(WITHOUT_LOSS,) if spec.mode is Mode.INFER else (),
    )


def scene_batches(scenes: Scenes, seed: int) -> Callable[[int, torch.device], Samples]:
    """A batch function: images (3, size, size) in [0, 1], and a target for each."""
    generator = torch.Generator().manual_seed(seed)

    def batch(micro_batch_size: int, device: torch.device) -> Samples:
        images = torch.rand(micro_batch_size, 3, scenes.size, scenes.size, generator=generator).to(
            device
        )
        targets = [_target(scenes, generator) for _ in range(micro_batch_size)]
        return list(images), [
            {key: value.to(device) for key, value in target.items()} for target in targets
        ]

    return batch


def loss(model: nn.Module, batch: Samples) -> Tensor:
    """Sum of the model's losses; in evaluation the sum of the detections' scores."""
    images, targets = batch
    if model.training:
        losses: dict[str, Tensor] = model(images, targets)
        return torch.stack([part.float() for part in losses.values()]).sum()
    return torch.cat([detections["scores"] for detections in model(images)]).sum()


def _scenes(builder: Builder, size: int) -> Scenes:
    with_keypoints = "keypoint" in builder.name
    classes = KEYPOINT_CLASSES if with_keypoints else CLASSES
    return Scenes(
        size=size,
        classes=builder.setting("num_classes", classes),
        keypoints=builder.setting("num_keypoints", KEYPOINTS) if with_keypoints else None,
        masks="mask" in builder.name,
    )


def _target(scenes: Scenes, generator: torch.Generator) -> dict[str, Tensor]:
    """Boxes (8, 4) within the image, labels (8,), and what else the model learns."""
    side = SMALLEST_BOX + (0.5 - SMALLEST_BOX) * torch.rand(OBJECTS, 2, generator=generator)
    corner = torch.rand(OBJECTS, 2, generator=generator) * (1 - side)
    boxes = torch.cat([corner, corner + side], dim=1) * scenes.size
    target = {
        "boxes": boxes,
        "labels": torch.randint(1, max(scenes.classes, 2), (OBJECTS,), generator=generator),
    }
    if scenes.masks:
        target["masks"] = _masks(boxes, scenes.size)
    if scenes.keypoints is not None:
        place = torch.rand(OBJECTS, scenes.keypoints, 2, generator=generator)
        points = (corner[:, None] + place * side[:, None]) * scenes.size
        target["keypoints"] = torch.cat([points, torch.ones_like(points[..., :1])], dim=2)
    return target


def _masks(boxes: Tensor, size: int) -> Tensor:
    """The boxes filled, (8, size, size)."""
    pixel = torch.arange(size)
    left, top, right, bottom = (boxes[:, [k]] for k in range(4))
    across = (pixel >= left) & (pixel < right)
    down = (pixel >= top) & (pixel < bottom)
    return (down[:, :, None] & across[:, None, :]).to(torch.uint8)


def _refuse_two_sizes(builder: Builder) -> None:
    for key in ("min_size", "max_size"):
        if key in builder.options:
            raise UsageError(
                f"--image-size and --model-option {key} both set the images of {builder.model}",
                next_step="leave one of them out",
            )
