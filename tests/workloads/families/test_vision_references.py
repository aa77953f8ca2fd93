"""The vision families against other people's code: torchvision's and timm's own models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bsprof.records import Scalar, WorkloadSpec
from bsprof.workloads.catalogue.entries import entries
from bsprof.workloads.families.stochastic_depth import StochasticDepth
from bsprof.workloads.resolve import resolve

torchvision = pytest.importorskip("torchvision")
pytestmark = pytest.mark.slow

THEIRS = {
    entry.name: entry.source.rsplit(".", 2)[-2]
    for entry in entries().values()
    if "torchvision" in entry.source
}
# torchvision gives its BatchNorms PyTorch's defaults, not the paper's.
_NORMS: dict[str, Scalar] = {"norm_eps": 1e-5, "norm_momentum": 0.1}
COMPARED: dict[str, dict[str, Scalar]] = {
    "resnet18": {},
    "resnet50": {},
    "resnext50-32x4d": {},
    "wide-resnet50-2": {},
    "vit-b-16": {},
    "convnext-tiny": {},
    "efficientnet-b0": _NORMS,
    "efficientnet-b2": _NORMS,
}


def ours(name: str, **options: Scalar) -> nn.Module:
    torch.manual_seed(0)
    return resolve(WorkloadSpec(model=name, model_options=options)).model().eval()


def theirs(name: str) -> nn.Module:
    """torchvision's model with all weights and statistics drawn anew.

    As they are built, the head of a ViT is zero, a ConvNeXt's blocks do nothing, and every
    BatchNorm has the same statistics: much could be wrong and not show.
    """
    torch.manual_seed(1)
    model: nn.Module = torchvision.models.get_model(THEIRS[name], weights=None).eval()
    _draw_anew(model)
    return model


def _draw_anew(model: nn.Module) -> None:
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.dim() <= 1 and tensor.is_floating_point():
                tensor.uniform_(0.5, 1.5)
            elif tensor.dim() > 1 and not tensor.any():
                tensor.normal_(std=0.02)


def copy_in_order(target: nn.Module, source: Sequence[Tensor]) -> None:
    """Fill a model's state, in its order, with tensors of as many elements."""
    state = target.state_dict()
    assert len(state) == len(source)
    for (name, mine), given in zip(state.items(), source, strict=True):
        assert mine.numel() == given.numel(), name
        state[name] = given.reshape(mine.shape)
    target.load_state_dict(state)


def in_our_order(name: str, model: nn.Module) -> list[Tensor]:
    """The state of torchvision's model; a ViT's positions stand behind its patches there."""
    state = model.state_dict()
    if name.startswith("vit"):
        first = ("class_token", "encoder.pos_embedding")
        state = {key: state.pop(key) for key in first} | state
    return list(state.values())


def assert_same_answer(one: nn.Module, other: nn.Module, size: int) -> None:
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        found, expected = one(images), other(images)
    assert float(expected.std()) > 1e-3
    scale = float(expected.abs().max())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("name", THEIRS)
def test_parameter_counts_are_those_of_torchvision(name: str) -> None:
    with torch.device("meta"):
        mine = resolve(WorkloadSpec(model=name)).model()
        published: nn.Module = torchvision.models.get_model(THEIRS[name], weights=None)
    assert sum(p.numel() for p in mine.parameters()) == sum(
        p.numel() for p in published.parameters()
    )


@pytest.mark.parametrize("name", THEIRS)
def test_published_numbers_are_those_of_torchvision(name: str) -> None:
    entry = entries()[name]
    found = [weights.meta for weights in torchvision.models.get_model_weights(THEIRS[name])]
    assert entry.parameters in [meta["num_params"] for meta in found]
    if entry.forward_flops is not None:
        gmacs = entry.forward_flops / 2e9
        assert min(abs(gmacs - meta["_ops"]) for meta in found) < 5e-4


@pytest.mark.parametrize("name", COMPARED)
def test_logits_are_those_of_torchvision(name: str) -> None:
    mine, other = ours(name, **COMPARED[name]), theirs(name)
    copy_in_order(mine, in_our_order(name, other))
    assert_same_answer(mine, other, 224)


@pytest.mark.parametrize("name", ["convnext-small", "efficientnet-b1"])
def test_stochastic_depth_is_that_of_torchvision(name: str) -> None:
    with torch.device("meta"):
        mine = resolve(WorkloadSpec(model=name)).model()
        other: nn.Module = torchvision.models.get_model(THEIRS[name], weights=None)
    rates = [module.rate for module in mine.modules() if isinstance(module, StochasticDepth)]
    kind = torchvision.ops.StochasticDepth
    expected: list[Any] = [module.p for module in other.modules() if isinstance(module, kind)]
    assert rates == pytest.approx(expected)


@pytest.mark.parametrize("distilled", [False, True])
def test_logits_of_deit_are_those_of_timm(distilled: bool) -> None:
    timm = pytest.importorskip("timm")
    middle = "_distilled" if distilled else ""
    other: nn.Module = timm.create_model(f"deit_tiny{middle}_patch16_224").eval()
    torch.manual_seed(1)
    _draw_anew(other)
    mine = ours(f"deit-tiny{middle.replace('_', '-')}-16")
    state = other.state_dict()
    first = [state.pop("cls_token")] + ([state.pop("dist_token")] if distilled else [])
    copy_in_order(mine, [torch.cat(first, dim=1), *state.values()])
    assert_same_answer(mine, other, 224)
