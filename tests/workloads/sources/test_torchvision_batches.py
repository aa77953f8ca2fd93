"""Targets and losses that need no torchvision: detection, segmentation, flow, auxiliary heads."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import Mode, WorkloadSpec
from bsprof.workloads.sources import (
    torchvision_classification,
    torchvision_detection,
    torchvision_flow,
    torchvision_segmentation,
)
from bsprof.workloads.sources.torchvision_builder import Builder
from bsprof.workloads.sources.torchvision_detection import OBJECTS, Scenes, scene_batches

CPU = torch.device("cpu")


def builder(name: str, package: str, **options: Any) -> Builder:
    """One whose function is found in that module of torchvision and gives what it was given."""

    def function(weights: None = None, weights_backbone: None = None, **given: Any) -> Any:
        assert weights is weights_backbone is None
        return given

    function.__module__ = f"torchvision.models.{package}"
    models = ModuleType("models")
    models.get_model_builder = lambda _name: function  # type: ignore[attr-defined]
    transforms = SimpleNamespace(keywords={"crop_size": 299})
    weights = [SimpleNamespace(transforms=transforms)]
    models.get_model_weights = lambda _name: weights  # type: ignore[attr-defined]
    return Builder(model=f"torchvision:{name}", name=name, options=options, models=models)


class Says(nn.Module):
    """Gives the same output for whatever it gets, and keeps what it got."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output
        self.inputs: tuple[Any, ...] = ()

    def forward(self, *inputs: Any) -> Any:
        self.inputs = inputs
        return self.output


def test_boxes_are_valid_and_labels_are_classes() -> None:
    scenes = Scenes(size=64, classes=5, keypoints=None, masks=False)
    images, targets = scene_batches(scenes, 0)(20, CPU)
    assert len(images) == len(targets) == 20
    assert images[0].shape == (3, 64, 64)
    boxes = torch.cat([target["boxes"] for target in targets])
    assert boxes.shape == (20 * OBJECTS, 4)
    assert bool((boxes[:, 2:] > boxes[:, :2]).all())
    assert float(boxes.min()) >= 0
    assert float(boxes.max()) <= 64
    labels = torch.cat([target["labels"] for target in targets])
    assert set(labels.unique().tolist()) == {1, 2, 3, 4}
    assert set(targets[0]) == {"boxes", "labels"}


def test_masks_fill_the_boxes_and_key_points_lie_in_them() -> None:
    scenes = Scenes(size=40, classes=2, keypoints=3, masks=True)
    (_,), (target,) = scene_batches(scenes, 1)(1, CPU)
    assert target["masks"].shape == (OBJECTS, 40, 40)
    assert target["keypoints"].shape == (OBJECTS, 3, 3)
    boxes = target["boxes"]
    for mask, (left, top, right, bottom) in zip(target["masks"], boxes.tolist(), strict=True):
        rows, columns = mask.nonzero(as_tuple=True)
        assert left <= int(columns.min()) <= int(columns.max()) < right
        assert top <= int(rows.min()) <= int(rows.max()) < bottom
    points = target["keypoints"]
    assert bool((points[..., :2] >= boxes[:, None, :2] - 1e-4).all())
    assert bool((points[..., :2] <= boxes[:, None, 2:] + 1e-4).all())
    assert bool((points[..., 2] == 1).all())


def test_detector_sums_its_losses_and_in_evaluation_its_scores() -> None:
    batch = scene_batches(Scenes(size=16, classes=3, keypoints=None, masks=False), 0)(2, CPU)
    trained = Says({"boxes": torch.tensor(1.5), "labels": torch.tensor(2.0)})
    assert float(torchvision_detection.loss(trained, batch)) == 3.5
    assert trained.inputs == batch
    evaluated = Says([{"scores": torch.tensor([0.5, 0.25])}, {"scores": torch.empty(0)}]).eval()
    assert float(torchvision_detection.loss(evaluated, batch)) == 0.75
    assert evaluated.inputs == (batch[0],)


@pytest.mark.parametrize(
    ("name", "options", "asked", "side", "settings"),
    [
        ("fasterrcnn_resnet50_fpn", {}, None, 800, {}),
        ("fasterrcnn_resnet50_fpn", {}, 96, 96, {"min_size": 96, "max_size": 96}),
        ("fasterrcnn_mobilenet_v3_large_320_fpn", {}, None, 320, {}),
        ("ssd300_vgg16", {"num_classes": 4}, None, 300, {"num_classes": 4}),
    ],
)
def test_detector_scales_to_the_size_of_its_images(
    name: str, options: dict[str, Any], asked: int | None, side: int, settings: dict[str, Any]
) -> None:
    made = torchvision_detection.workload(
        builder(name, "detection.any", **options), WorkloadSpec(model="x", image_size=asked)
    )
    batch = made.batch(3, CPU)
    assert made.size is not None
    assert made.size(batch) == 3
    assert batch[0][0].shape == (3, side, side)
    assert made.model() == settings
    assert made.uses_image_size is (name != "ssd300_vgg16")


def test_detector_in_evaluation_says_that_it_has_no_loss() -> None:
    detector = builder("fasterrcnn_resnet50_fpn", "detection.faster_rcnn")
    assert torchvision_detection.workload(detector, WorkloadSpec(model="x")).notes == ()
    spec = WorkloadSpec(model="x", mode=Mode.INFER)
    (note,) = torchvision_detection.workload(detector, spec).notes
    assert note.code == "no-loss-in-evaluation"


def test_detectors_targets_follow_the_model() -> None:
    keypoints = builder("keypointrcnn_resnet50_fpn", "detection.keypoint_rcnn", num_keypoints=5)
    spec = WorkloadSpec(model="x", image_size=32)
    _, (target,) = torchvision_detection.workload(keypoints, spec).batch(1, CPU)
    assert target["keypoints"].shape == (OBJECTS, 5, 3)
    assert set(target["labels"].tolist()) == {1}
    masks = builder("maskrcnn_resnet50_fpn", "detection.mask_rcnn")
    _, (target,) = torchvision_detection.workload(masks, spec).batch(1, CPU)
    assert target["masks"].shape == (OBJECTS, 32, 32)


def test_two_sizes_of_a_detector_are_refused() -> None:
    twice = builder("retinanet_resnet50_fpn", "detection.retinanet", max_size=100)
    with pytest.raises(UsageError, match="--image-size and --model-option max_size"):
        torchvision_detection.workload(twice, WorkloadSpec(model="x", image_size=96))


@pytest.mark.parametrize("value", [True, 0, "many", 2.5])
def test_number_of_classes_is_a_whole_number(value: Any) -> None:
    with pytest.raises(UsageError, match="num_classes"):
        builder("resnet18", "resnet", num_classes=value).setting("num_classes", 10)


def test_segmentation_counts_the_auxiliary_head_half_and_only_in_training() -> None:
    images, labels = torchvision_segmentation.pixel_batches(8, 4, 0)(2, CPU)
    assert (images.shape, labels.shape) == ((2, 3, 8, 8), (2, 8, 8))
    main, aux = torch.randn(2, 2, 4, 8, 8)
    model = Says({"out": main, "aux": aux})
    whole = F.cross_entropy(main, labels) + 0.5 * F.cross_entropy(aux, labels)
    assert torch.allclose(torchvision_segmentation.loss(model, (images, labels)), whole)
    model.eval()
    alone = torchvision_segmentation.loss(model, (images, labels))
    assert torch.allclose(alone, F.cross_entropy(main, labels))


@pytest.mark.parametrize(
    ("package", "options", "settings"),
    [
        ("segmentation.fcn", {}, {"aux_loss": True}),
        ("segmentation.fcn", {"aux_loss": False}, {"aux_loss": False}),
        ("segmentation.lraspp", {}, {}),
    ],
)
def test_segmentation_has_its_auxiliary_head_as_in_the_recipes(
    package: str, options: dict[str, Any], settings: dict[str, Any]
) -> None:
    made = torchvision_segmentation.workload(
        builder("any", package, **options), WorkloadSpec(model="x")
    )
    assert made.model() == settings
    assert made.batch(1, CPU)[0].shape == (1, 3, 480, 480)


@pytest.mark.parametrize(
    ("name", "package", "asked", "side", "settings"),
    [
        ("any", "resnet", None, 299, {}),
        ("any", "resnet", 64, 64, {}),
        ("any", "vision_transformer", None, 224, {"image_size": 224}),
        ("any", "maxvit", 64, 64, {"input_size": (64, 64)}),
        ("googlenet", "googlenet", None, 299, {"init_weights": False}),
    ],
)
def test_classifier_is_told_the_size_it_is_built_for(
    name: str, package: str, asked: int | None, side: int, settings: dict[str, Any]
) -> None:
    made = torchvision_classification.image_workload(
        builder(name, package, num_classes=7), WorkloadSpec(model="x", image_size=asked)
    )
    images, labels = made.batch(2, CPU)
    assert images.shape == (2, 3, side, side)
    assert int(labels.max()) < 7
    assert made.model() == {**settings, "num_classes": 7}


def test_clips_have_frames() -> None:
    spec = WorkloadSpec(model="x", image_size=32)
    for package, frames in (("video.resnet", 16), ("video.swin_transformer", 32)):
        made = torchvision_classification.video_workload(builder("any", package), spec)
        assert made.batch(1, CPU)[0].shape == (1, 3, frames, 32, 32)
    fixed = torchvision_classification.video_workload(builder("any", "video.mvit"), spec)
    assert not fixed.uses_image_size


def test_auxiliary_classifiers_add_their_share() -> None:
    labels = torch.tensor([0, 1])
    main, first, second = torch.randn(3, 2, 5)
    batch = (torch.zeros(2, 3, 1, 1), labels)

    def entropy(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels)

    total = torchvision_classification.loss(Says((main, first, second)), batch, 0.3)
    assert torch.allclose(total, entropy(main) + 0.3 * (entropy(first) + entropy(second)))
    assert torch.allclose(
        torchvision_classification.loss(Says((main, None)), batch, 0.3), entropy(main)
    )
    assert torch.allclose(torchvision_classification.loss(Says(main), batch, 0.3), entropy(main))


def test_flow_loss_weighs_later_estimates_more() -> None:
    made = torchvision_flow.workload(
        builder("raft_small", "optical_flow.raft"), WorkloadSpec(model="x")
    )
    first, second, flow = made.batch(2, CPU)
    assert first.shape == second.shape == (2, 3, 368, 496)
    assert flow.shape == (2, 2, 368, 496)
    model = Says([flow + 1, flow - 3])
    assert float(made.loss(model, (first, second, flow))) == pytest.approx(0.8 * 1 + 3)
    assert model.inputs[0] is first
    assert model.inputs[1] is second
    spec = WorkloadSpec(model="x", image_size=128)
    square = torchvision_flow.workload(builder("raft_small", "optical_flow.raft"), spec)
    assert square.batch(1, CPU)[2].shape == (1, 2, 128, 128)
