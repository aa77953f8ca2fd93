from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import WorkloadSpec
from bsprof.workloads.checkpointing import find_blocks
from bsprof.workloads.resolve import resolve
from bsprof.workloads.sources import timm_models
from bsprof.workloads.training import Training, build_training

timm = pytest.importorskip("timm")
CPU = torch.device("cpu")


def spec(name: str, **options: Any) -> WorkloadSpec:
    return WorkloadSpec(model=f"timm:{name}", **options)


def test_default_size_and_classes_are_timms(train: Callable[..., Training]) -> None:
    training = train(spec("test_vit"))
    images, labels = training.make_batch(64)
    assert images.shape == (64, 3, 160, 160)
    assert int(labels.max()) >= 500
    assert training.facts.parameter_count == sum(
        p.numel() for p in timm.create_model("test_vit").parameters()
    )


def test_loss_is_cross_entropy() -> None:
    workload = resolve(spec("test_resnet", image_size=64))
    model = workload.model().eval()
    images, labels = workload.batch(2, CPU)
    assert torch.equal(
        workload.loss(model, (images, labels)), F.cross_entropy(model(images), labels)
    )


def test_image_size_is_built_in_where_the_model_has_one(train: Callable[..., Training]) -> None:
    for name in ("test_vit", "test_resnet"):
        training = train(spec(name, image_size=96))
        assert training.make_batch(1)[0].shape == (1, 3, 96, 96)


def test_options_are_arguments_of_create_model(train: Callable[..., Training]) -> None:
    training = train(
        spec("test_vit", model_options={"num_classes": 7, "in_chans": 1, "img_size": 64})
    )
    images, labels = training.make_batch(50)
    assert images.shape == (50, 1, 64, 64)
    assert int(labels.max()) < 7
    assert training.model.get_parameter("head.weight").shape[0] == 7


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet5O", {}, "near: resnet50"),
        ("resnet50.a1_in1x", {}, "its variants: .*resnet50.a1_in1k"),
        ("tf_efficientnet_b0_ns", {}, "now called tf_efficientnet_b0.ns_jft_in1k"),
        ("hf-hub:someone/resnet50", {}, "has no model"),
        ("test_resnet", {"pretrained": True}, "weights are random"),
        ("test_resnet", {"features_only": True}, "features have no loss"),
        ("test_vit", {"num_classes": 0}, "no classifier"),
        ("test_vit", {"num_classes": "many"}, "whole number"),
        ("test_vit", {"dtype": "float16"}, "--precision"),
        ("samvit_base_patch16", {}, "num_classes=1000"),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(spec(name, model_options=options))


def test_tagged_variant_is_found() -> None:
    assert (
        resolve(spec("vit_tiny_patch16_384.augreg_in21k_ft_in1k")).batch(1, CPU)[0].shape[2] == 384
    )


def test_two_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="--image-size and --model-option img_size"):
        resolve(spec("test_vit", image_size=64, model_options={"img_size": 96}))


def test_unknown_option_names_near_ones() -> None:
    asked = spec("test_resnet", model_options={"num_clases": 3})
    with pytest.raises(UsageError, match="has no --model-option num_clases") as caught:
        build_training(asked, resolve(asked), "cpu")
    assert caught.value.found.startswith("near: num_classes")


def test_model_that_cannot_be_built_keeps_timms_words() -> None:
    asked = spec("test_vit", model_options={"global_pool": "nothing"})
    with pytest.raises(WorkloadError, match="pooling") as caught:
        build_training(asked, resolve(asked), "cpu")
    assert "cannot build the model of timm:test_vit" in caught.value.doing


def test_attention_follows_timms_switch(train: Callable[..., Training]) -> None:
    before = timm.layers.use_fused_attn()
    for kind, fused in (("eager", False), ("sdpa", True)):
        model = train(spec("test_vit", attention=kind, image_size=64), sizes=(1,)).model
        switches = {m.fused_attn for m in model.modules() if hasattr(m, "fused_attn")}
        assert switches == {fused}
        assert timm.layers.use_fused_attn() is before


def test_attention_that_would_change_nothing_is_refused() -> None:
    for kind in ("eager", "sdpa"):
        asked = spec("test_resnet", attention=kind)
        with pytest.raises(UsageError, match=f"--attention {kind} has no effect"):
            build_training(asked, resolve(asked), "cpu")
    asked = spec("test_vit", attention="flash")
    with pytest.raises(UsageError, match="timm has no attention 'flash'"):
        build_training(asked, resolve(asked), "cpu")


def test_auxiliary_classifier_adds_its_share() -> None:
    logits = torch.randn(2, 4, 3)
    labels = torch.tensor([0, 1, 2, 0])
    model = nn.Identity()
    model.forward = lambda _images: tuple(logits)  # type: ignore[method-assign, assignment]
    total = timm_models.loss(model, (torch.zeros(4, 1), labels))
    main, aux = (F.cross_entropy(part, labels) for part in logits)
    assert torch.allclose(total, main + 0.4 * aux)


def test_output_that_is_no_logits_is_told(train: Callable[..., Training]) -> None:
    with pytest.raises(WorkloadError, match="no logits") as caught:
        train(spec("test_vit", image_size=64, model_options={"global_pool": ""}))
    assert "shape (1, " in caught.value.found


@pytest.mark.parametrize(
    ("name", "count", "kinds"),
    [
        ("vit_tiny_patch16_224", 12, {"Block"}),
        ("swin_tiny_patch4_window7_224", 15, {"SwinTransformerBlock", "PatchMerging"}),
        ("convnext_tiny", 21, {"ConvNeXtBlock", "Sequential"}),
        ("resnet50", 16, {"Bottleneck"}),
        ("resnet10t", 4, {"BasicBlock"}),
        ("efficientnet_b0", 16, {"DepthwiseSeparableConv", "InvertedResidual"}),
        ("regnety_002", 13, {"Bottleneck"}),
        ("dm_nfnet_f0", 12, {"NormFreeBlock"}),
        ("mixer_s32_224", 8, {"MixerBlock"}),
        ("cait_xxs24_224", 26, {"LayerScaleBlock", "LayerScaleBlockClassAttn"}),
        ("csatv2", 18, {"Block", "TransformerBlock"}),
    ],
)
def test_blocks_are_the_layers_that_the_model_counts(
    name: str, count: int, kinds: set[str]
) -> None:
    with torch.device("meta"):
        model = timm.create_model(name)
    found = timm_models.blocks(model)
    assert len(found) == len(set(map(id, found))) == count
    assert {type(block).__name__ for block in found} == kinds


def test_model_without_blocks_cannot_recompute() -> None:
    with torch.device("meta"):
        model = timm.create_model("vgg11")
    with pytest.raises(WorkloadError, match="found no blocks"):
        find_blocks(model, resolve(spec("vgg11")))


@pytest.mark.parametrize("name", ["test_vit", "test_resnet", "test_efficientnet"])
def test_recomputing_changes_no_gradient(same_gradients: Callable[..., int], name: str) -> None:
    size = None if name == "test_vit" else 64
    assert same_gradients(spec(name, image_size=size)) > 1
