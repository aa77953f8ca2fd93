from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bsprof.accounting.counter import OperatorCounter
from bsprof.records import Mode, WorkloadSpec
from bsprof.workloads.families.encoder import Encoder
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import build_training

CPU = torch.device("cpu")
META = torch.device("meta")
SMALL = {"layers": 2, "width": 32, "heads": 2, "feed_forward": 48, "vocabulary": 64}


def encoder(model: str, **options: Any) -> Encoder:
    """A small one in evaluation."""
    spec = WorkloadSpec(model=model, seq_len=8, mode=Mode.INFER, model_options={**SMALL, **options})
    built = build_training(spec, resolve(spec), "cpu").model
    assert isinstance(built, Encoder)
    return built


def tokens(count: int = 8) -> Tensor:
    return torch.randint(2, 64, (2, count), generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def test_every_token_sees_every_other() -> None:
    model, text = encoder("bert-base"), tokens()
    changed = text.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 64
    difference = (model(text) - model(changed)).abs().amax(dim=-1)
    assert bool((difference > 1e-5).all())


@torch.no_grad()
def test_padding_is_seen_by_no_token() -> None:
    model, text = encoder("roberta-base"), tokens()
    mask = torch.ones(2, 8, dtype=torch.bool)
    assert torch.allclose(model(text), model(text, mask), atol=1e-5)
    mask[:, 5:] = False
    changed = text.clone()
    changed[:, 5:] = 2
    assert torch.allclose(model(text, mask)[:, :5], model(changed, mask)[:, :5], atol=1e-5)
    assert torch.allclose(model(text, mask)[:, :5], model(text[:, :5]), atol=1e-5)


@torch.no_grad()
def test_segments_of_bert_count() -> None:
    model, text = encoder("bert-base"), tokens()
    zeros = torch.zeros_like(text)
    assert torch.equal(model(text), model(text, segments=zeros))
    assert not torch.allclose(model(text), model(text, segments=zeros + 1), atol=1e-3)


def test_roberta_keeps_two_positions_for_padding() -> None:
    model = encoder("roberta-base")
    model(tokens()).sum().backward()
    used = model.positions.weight.grad
    assert used is not None
    assert used.abs().sum(dim=1).nonzero().flatten().tolist() == list(range(2, 10))


def test_some_tokens_are_masked_and_only_those_are_scored() -> None:
    workload = resolve(WorkloadSpec(model="bert-base", seq_len=128))
    text, labels = workload.batch(64, CPU)
    scored = labels != -100
    assert torch.equal(scored, text == 0)
    assert 0.13 < scored.float().mean() < 0.18
    assert workload.count is not None
    assert workload.count((text, labels)) == int(scored.sum())
    assert 30_000 < int(text.max()) < 30_522


def test_padding_mask_comes_with_the_batch_when_asked_for() -> None:
    options = {"padding_mask": True}
    workload = resolve(WorkloadSpec(model="bert-base", seq_len=16, model_options=options))
    _, _, mask = workload.batch(4, CPU)
    assert mask.shape == (4, 16)
    assert mask.dtype == torch.bool
    assert bool(mask.all())


def counted(model: str, seq_len: int, mode: Mode = Mode.INFER) -> tuple[int, Any]:
    """FLOPs of one sample on the meta device, and the model."""
    workload = resolve(WorkloadSpec(model=model, seq_len=seq_len))
    with META:
        built = workload.model()
    built.train(mode is Mode.TRAIN)
    with OperatorCounter() as counter:
        loss = workload.loss(built, workload.batch(1, META))
        if mode is Mode.TRAIN:
            loss.backward()  # type: ignore[no-untyped-call]
    return counter.totals.model_flops, built


@pytest.mark.parametrize(
    ("model", "layers", "width"), [("bert-base", 12, 768), ("bert-large", 24, 1024)]
)
def test_flops_are_those_of_the_published_formula(model: str, layers: int, width: int) -> None:
    """Narayanan et al. 2021, arXiv 2104.04473, section 5.1 and its appendix, one forward pass.

    24 B s l h^2 (1 + s / 6h) + 2 B s h V; BERT's own transform before the output, 2 s h^2, is not
    in it, which is what is left of the 2 %.
    """
    n, vocabulary = 512, 30_522
    formula = 24 * n * layers * width**2 * (1 + n / (6 * width)) + 2 * n * width * vocabulary
    forward, _ = counted(model, n)
    assert forward == pytest.approx(formula, rel=0.02)
    assert forward == pytest.approx(formula + 2 * n * width**2, rel=1e-9)


def test_a_training_step_is_three_forward_passes() -> None:
    forward, _ = counted("bert-base", 512)
    both, _ = counted("bert-base", 512, Mode.TRAIN)
    assert both == 3 * forward


def test_flops_of_the_encoder_are_the_published_figure() -> None:
    """BERT base at 128 tokens: 22.5 billion; Jiao et al. 2020 (TinyBERT), arXiv 1909.10351.

    Their model classifies: the transform and the output over the vocabulary are not in it.
    """
    forward, built = counted("bert-base", 128)
    head = 2 * 128 * (built.head.weight.numel() + built.transform[0].weight.numel())
    assert forward - head == pytest.approx(22.5e9, rel=0.02)
