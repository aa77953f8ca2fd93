from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from bsprof.accounting.counter import OperatorCounter
from bsprof.errors import UsageError
from bsprof.records import Mode, Precision, WorkloadSpec
from bsprof.workloads.catalogue.entries import entries
from bsprof.workloads.families.moe import MoeSettings, SparseFeedForward, assign
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training

MODELS = [name for name, entry in entries().items() if entry.family == "moe"]
SETTINGS = MoeSettings(
    layers=1,
    width=16,
    heads=2,
    key_heads=2,
    head_width=8,
    feed_forward=12,
    vocabulary=9,
    seq_len=10,
    norm="rms",
    activation="silu",
    gated=True,
    experts=6,
    chosen=2,
    normalised=False,
    capacity_factor=3.0,
)


def small(model: str, options: dict[str, Any] | None = None, **more: Any) -> WorkloadSpec:
    """A model with all its peculiarities, and few of everything."""
    config = entries()[model].config
    sizes: dict[str, Any] = {
        "layers": 2,
        "width": 32,
        "heads": 4,
        "key_heads": 4 if config["key_heads"] == config["heads"] else 2,
        "head_width": 8,
        "feed_forward": 24,
        "vocabulary": 61,
        "rotary_width": 8,
        "experts": 6,
        "chosen": 2,
        "shared_feed_forward": 20,
    }
    sizes = {key: value for key, value in sizes.items() if key in config}
    return WorkloadSpec(
        model=model, model_options=sizes | (options or {}), **({"seq_len": 12} | more)
    )


def build(spec: WorkloadSpec) -> Training:
    return build_training(spec, resolve(spec), "cpu")


@pytest.mark.parametrize("model", MODELS)
def test_parameter_count_is_the_published_one(model: str) -> None:
    with torch.device("meta"):
        parameters = resolve(WorkloadSpec(model=model)).model().parameters()
    count = sum(p.numel() for p in parameters)
    assert count == pytest.approx(entries()[model].parameters, rel=1e-3)


@pytest.mark.parametrize("model", MODELS)
def test_learns_one_batch_by_heart(model: str) -> None:
    training = build(small(model, optimizer_options={"lr": 0.01}))
    batch = training.make_batch(3)
    first = float(training.workload.loss(training.model, batch).detach())
    assert first == pytest.approx(math.log(61), rel=0.25)
    for step in range(15):
        training.micro_step(batch, 1.0)
        if step == 0:
            without = [n for n, p in training.model.named_parameters() if p.grad is None]
            assert without == []
            assert all(p.grad.any() for p in training.model.parameters())
        assert training.optimizer_step()
        training.zero_grad()
    assert float(training.workload.loss(training.model, batch).detach()) < 0.7 * first


@pytest.mark.parametrize("model", MODELS)
def test_sees_no_future_and_no_other_sample(model: str) -> None:
    training = build(small(model, mode=Mode.INFER))
    tokens, _ = training.make_batch(2)
    changed = tokens.clone()
    changed[0, 8:] = (changed[0, 8:] + 1) % 61
    with torch.no_grad():
        before, after = training.model(tokens), training.model(changed)
    assert torch.allclose(before[0, :8], after[0, :8], atol=1e-5)
    assert torch.allclose(before[1], after[1], atol=1e-5)
    assert not torch.allclose(before[0, 8:], after[0, 8:], atol=1e-3)


def reference(layer: SparseFeedForward, x: Tensor) -> Tensor:
    """Token after token through its best experts, for one sample (n, width); none dropped."""
    settings = layer.settings
    rows = []
    for token in x:
        shares = layer.router(token).softmax(0)
        best = shares.argsort(descending=True)[: settings.chosen]
        total = shares[best].sum() if settings.normalised else 1.0
        y = torch.zeros_like(token)
        for expert in best:
            up, gate = layer.experts.up[expert], layer.experts.gate[expert]
            inner = torch.nn.functional.silu(token @ gate) * (token @ up)
            y += shares[expert] / total * (inner @ layer.experts.down[expert])
        if layer.shared is not None and layer.shared_gate is not None:
            y += torch.sigmoid(layer.shared_gate(token)) * layer.shared(token)
        rows.append(y)
    return torch.stack(rows)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("shared", [0, 20])
def test_equals_tokens_sent_one_by_one(normalised: bool, shared: int) -> None:
    torch.manual_seed(0)
    layer = SparseFeedForward(replace(SETTINGS, normalised=normalised, shared_feed_forward=shared))
    x = torch.randn(3, 10, 16) * 3
    with torch.no_grad():
        expected = torch.stack([reference(layer, sample) for sample in x])
        assert torch.allclose(layer(x), expected, atol=1e-5)


def test_rows_are_taken_in_the_order_of_the_text() -> None:
    experts = torch.tensor([[[0, 1], [0, 2], [1, 0]], [[2, 1], [0, 1], [1, 2]]])
    slots, kept = assign(experts, 3, 2)
    # Rows run through expert, sample, place: 3 x 2 x 2 of them; 12 is none.
    assert slots.tolist() == [[[0, 4], [1, 8], [5, 12]], [[10, 6], [2, 7], [12, 11]]]
    assert kept.tolist() == [
        [[True] * 2, [True] * 2, [True, False]],
        [[True] * 2] * 2 + [[False, True]],
    ]


def test_what_finds_no_row_adds_nothing() -> None:
    torch.manual_seed(0)
    layer = SparseFeedForward(replace(SETTINGS, chosen=1, capacity_factor=1.0))
    with torch.no_grad():
        x = torch.randn(1, 1, 16).expand(1, 10, 16)  # all want the same expert, two find a row
        y = layer(x)
    assert layer.capacity(10) == 2
    assert torch.equal(y[0, :2], y[0, :1].expand(2, -1))
    assert y[0, 0].abs().max() > 0
    assert not y[0, 2:].any()


@pytest.mark.parametrize(
    ("factor", "n", "capacity"),
    [(1.0, 12, 4), (1.0, 10, 4), (1.25, 12, 5), (3.0, 12, 12), (9.0, 12, 12)],
)
def test_capacity_is_a_multiple_of_the_equal_share(factor: float, n: int, capacity: int) -> None:
    assert SparseFeedForward(replace(SETTINGS, capacity_factor=factor)).capacity(n) == capacity


@pytest.mark.parametrize("precision", [Precision.AMP_BF16, Precision.BF16])
def test_half_precision_runs(precision: Precision) -> None:
    training = build(small("qwen1.5-moe-a2.7b", precision=precision))
    training.micro_step(training.make_batch(2), 1.0)
    assert all(torch.isfinite(p.grad).all() for p in training.model.parameters())


def test_recomputed_blocks_give_the_same_gradient() -> None:
    gradients = []
    for checkpointing in ("none", "full"):
        training = build(small("mixtral-8x7b", activation_checkpointing=checkpointing))
        training.micro_step(training.make_batch(2), 1.0)
        gradients.append([p.grad for p in training.model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-7)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"chosen": 9}, "cannot choose 9 of 8"), ({"capacity_factor": 0.0}, "capacity_factor=0.0")],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        resolve(WorkloadSpec(model="mixtral-8x7b", model_options=options))


@pytest.mark.parametrize(
    ("model", "unused_experts"),
    [("mixtral-8x7b", 6), ("olmoe-1b-7b", 56), ("qwen1.5-moe-a2.7b", 56)],
)
def test_flops_are_those_of_the_active_parameters(model: str, unused_experts: int) -> None:
    # Chowdhery et al. 2022, arXiv 2204.02311, appendix B: 6 N + 12 L H Q T per token, N being
    # what one token goes through: the published count without the embedding that is looked up
    # and without the experts that a token does not choose.
    entry = entries()[model]
    layers, width, heads, features, seq_len = (
        int(entry.config[key]) for key in ("layers", "width", "heads", "feed_forward", "seq_len")
    )
    expert = 3 * width * features
    active = entry.parameters - layers * unused_experts * expert
    looked_up = int(entry.config["vocabulary"]) * width
    per_token = 6 * (active - looked_up) + 12 * layers * heads * 128 * (seq_len + 1) / 2
    workload = resolve(WorkloadSpec(model=model))
    with torch.device("meta"):
        built = workload.model()
    tokens = torch.zeros(1, seq_len, dtype=torch.long, device="meta")
    with OperatorCounter() as counter:
        workload.loss(built, (tokens, tokens)).backward()
    assert counter.totals.uncounted == ()
    assert counter.totals.model_flops == pytest.approx(seq_len * per_token, rel=0.02)
    published = {"mixtral-8x7b": 12.9e9, "olmoe-1b-7b": 1.3e9, "qwen1.5-moe-a2.7b": 2.7e9}
    assert active == pytest.approx(published[model], rel=0.02)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_compiles_whole() -> None:
    training = build(small("qwen1.5-moe-a2.7b"))
    tokens = training.make_batch(2)[0]
    compiled = torch.compile(training.model, fullgraph=True)
    assert torch.allclose(compiled(tokens), training.model(tokens), atol=1e-4)
