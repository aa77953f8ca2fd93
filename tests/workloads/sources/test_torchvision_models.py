from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training

torchvision = pytest.importorskip("torchvision")
CPU = torch.device("cpu")


def spec(name: str, **options: Any) -> WorkloadSpec:
    return WorkloadSpec(model=f"torchvision:{name}", **options)


def test_classifier_at_the_size_of_its_weights() -> None:
    for name, size in (("resnet18", 224), ("inception_v3", 299), ("vit_h_14", 224)):
        assert resolve(spec(name)).batch(1, CPU)[0].shape == (1, 3, size, size)


def test_classifier_trains(train: Callable[..., Training]) -> None:
    training = train(spec("resnet18", image_size=64, model_options={"num_classes": 5}))
    assert int(training.make_batch(50)[1].max()) < 5
    assert training.model.get_parameter("fc.weight").shape[0] == 5


def test_auxiliary_classifiers_are_trained(train: Callable[..., Training]) -> None:
    training = train(spec("googlenet", image_size=96), sizes=(2,))
    names = {name.partition(".")[0] for name, _ in training.model.named_parameters()}
    assert {"aux1", "aux2"} <= names


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet5O", {}, "near: resnet50"),
        ("quantized_resnet50", {}, "take torchvision:resnet50"),
        ("resnet18", {"weights": "DEFAULT"}, "weights are random"),
        ("fcn_resnet50", {"weights_backbone": "DEFAULT"}, "weights are random"),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(spec(name, model_options=options))


def test_unknown_option_names_near_ones() -> None:
    asked = spec("resnet18", model_options={"num_clases": 3})
    with pytest.raises(UsageError, match="has no --model-option num_clases") as caught:
        build_training(asked, resolve(asked), "cpu")
    assert caught.value.found.startswith("near: num_classes")


def test_size_that_a_detector_is_built_for_cannot_be_changed() -> None:
    with pytest.raises(UsageError, match="--image-size has no effect"):
        resolve(spec("ssd300_vgg16", image_size=64))


def test_attention_has_no_choice() -> None:
    with pytest.raises(UsageError, match="--attention has no effect"):
        resolve(spec("vit_b_16", attention="eager"))


def test_every_model_has_a_workload_that_builds_without_memory() -> None:
    """Names that are refused are quantized; nothing is downloaded."""
    refused = 0
    for name in torchvision.models.list_models():
        if name.startswith("quantized_"):
            with pytest.raises(UsageError):
                resolve(spec(name))
            refused += 1
    assert refused > 5
    for name in ("resnet50", "maxvit_t", "fcos_resnet50_fpn", "lraspp_mobilenet_v3_large", "s3d"):
        with torch.device("meta"):
            model = resolve(spec(name)).model()
        assert all(p.is_meta for p in model.parameters())


@pytest.mark.parametrize(
    "name", ["fasterrcnn_mobilenet_v3_large_320_fpn", "lraspp_mobilenet_v3_large"]
)
def test_evaluation_gives_one_number(infer: Callable[..., Training], name: str) -> None:
    infer(spec(name, image_size=64))
