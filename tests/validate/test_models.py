"""Workloads written for validation: as large as published, and computing what they stand for."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from bsprof.validate.models import gpt2, litgpt, torchtune, vision
from bsprof.validate.models.litgpt_sizes import SIZES, Size


def count(model: torch.nn.Module, *, trainable: bool = False) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad or not trainable)


def on_no_device(make):
    with torch.device("meta"):
        return make()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("simple-cnn-cifar", 62_006), ("ddpm-unet-64", 62_300_000), ("vit-b-16", 85_800_000)],
)
def test_vision_models_are_as_large_as_published(name, parameters):
    model = on_no_device(vision.MODELS[name][0])
    assert count(model) == pytest.approx(parameters, rel=0.001)


def test_gpt2_is_as_large_as_published():
    model = on_no_device(gpt2.workload().model)
    assert count(model) == 124_475_904  # with 50,304 tokens, the output tied to them


def test_llama_is_as_large_as_published():
    assert count(on_no_device(torchtune.workload().model)) == 3_212_749_824


@pytest.mark.parametrize(
    ("name", "trainable"),
    [("phi-1.5", 1_572_864), ("llama-2-7b", 4_194_304), ("llama-2-13b", 6_553_600)],
)
def test_adapters_are_as_many_as_the_source_counts(name, trainable):
    model = on_no_device(litgpt.workload(name=name, rank=8).model)
    assert count(model, trainable=True) == trainable


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("tiny-llama", 1_100_048_384), ("llama-2-7b", 6_738_415_616), ("mistral-7b", 7_241_732_096)],
)
def test_litgpt_decoders_are_as_large_as_published(name, parameters):
    assert count(on_no_device(litgpt.workload(name=name).model)) == parameters


def tiny(**changes) -> Size:
    numbers = {
        "layers": 2,
        "width": 32,
        "heads": 4,
        "groups": 2,
        "head": 8,
        "hidden": 48,
        "vocabulary": 50,
        "rotary": 8,
        "gated": "silu",
    }
    return Size(**{**numbers, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"groups": 4},
        {"groups": 1, "parallel": True, "shared": True, "norm": "layer", "gated": ""},
        {"gated": "gelu", "offset": True, "post_norms": True, "cap": True},
    ],
)
def test_a_decoder_trains_its_adapters(changes, monkeypatch):
    monkeypatch.setitem(SIZES, "tiny", tiny(**changes))
    workload = litgpt.workload(name="tiny", seq_len=140, rank=2, feed=True, out=True)
    model = workload.model()
    batch = workload.batch(2, torch.device("cpu"))
    workload.loss(model, batch).backward()
    with_gradient = {name for name, p in model.named_parameters() if p.grad is not None}
    assert with_gradient
    assert all("lora_" in name for name in with_gradient)


def test_a_token_sees_no_later_one(monkeypatch):
    monkeypatch.setitem(SIZES, "tiny", tiny())
    model = litgpt.workload(name="tiny", seq_len=140).model().eval()
    tokens = torch.randint(50, (1, 140))
    changed = tokens.clone()
    changed[0, 100] = (changed[0, 100] + 1) % 50
    before, after = (torch.cat(model(t), dim=1) for t in (tokens, changed))
    assert torch.equal(before[:, :100], after[:, :100])
    assert not torch.equal(before[:, 100:], after[:, 100:])


def test_eager_attention_of_gpt2_is_the_fused_one():
    torch.manual_seed(0)
    eager = gpt2.Attention("eager", keeps_mask=True)
    fused = gpt2.Attention("sdpa", keeps_mask=True)
    fused.load_state_dict(eager.state_dict())
    x = torch.randn(2, 9, gpt2.WIDTH)
    torch.testing.assert_close(eager(x), fused(x))


def test_rotations_keep_lengths():
    table = torch.stack([torch.ones(5, 4) * 0.6, torch.ones(5, 4) * 0.8], dim=-1)
    x = torch.randn(1, 5, 2, 8)
    turned = torchtune.rotated(x, table)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))


def test_a_norm_is_a_norm():
    x = torch.randn(2, 3, torchtune.WIDTH)
    expected = F.rms_norm(x, (torchtune.WIDTH,), eps=1e-5)
    torch.testing.assert_close(torchtune.Norm(compiled=False)(x), expected)


def test_a_fused_loss_keeps_logits_alone():
    saved = []
    logits = torch.randn(6, 10, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        loss = gpt2.FusedCrossEntropy.apply(logits, torch.zeros(6, dtype=torch.long), False)
    loss.backward()
    assert [t.dtype for t in saved if t.dim() == 2] == [torch.bfloat16]
    assert logits.grad is not None


def test_an_optimizer_in_the_backward_pass_leaves_no_gradient():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torchtune.StepInBackward([weight])
    (weight * 2).sum().backward()
    assert weight.grad is None
    assert not torch.equal(weight, torch.ones(3))
    optimizer.step()
