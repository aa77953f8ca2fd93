"""What every text, audio and recommender family of the catalogue does, at a reduced size."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from bsprof.accounting.counter import OperatorCounter
from bsprof.records import Mode, Precision, WorkloadSpec
from bsprof.workloads.catalogue.entries import entries
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training

CPU = torch.device("cpu")
FAMILIES = ("encoder", "lstm", "ncf", "speech", "t5")
TEXT = {"width": 32, "heads": 2, "vocabulary": 64}
SMALL: dict[str, dict[str, Any]] = {
    "bert-base": {**TEXT, "layers": 2, "feed_forward": 48},
    "roberta-base": {**TEXT, "layers": 2, "feed_forward": 48, "padding_mask": True},
    "t5-small": {**TEXT, "depths": "2,1", "head_width": 8, "feed_forward": 48, "target_len": 5},
    "t5-v1.1-small": {**TEXT, "depths": "1,2", "head_width": 8, "feed_forward": 48},
    "whisper-tiny": {**TEXT, "depths": "2,1", "mels": 4, "frames": 24},
    "lstm-ptb-medium": {"embedding": 24, "width": 32, "vocabulary": 64},
    "awd-lstm-ptb": {"embedding": 24, "width": 32, "vocabulary": 64},
    "ncf-ml-1m": {"users": 40, "items": 30},
}
BLOCKS = {
    "bert-base": 2,
    "roberta-base": 2,
    "t5-small": 3,
    "t5-v1.1-small": 3,
    "whisper-tiny": 3,
    "lstm-ptb-medium": 2,
    "awd-lstm-ptb": 3,
    "ncf-ml-1m": 3,
}
ATTENDING = ("bert-base", "roberta-base", "t5-small", "t5-v1.1-small", "whisper-tiny")
SEQ_LEN = 7


def spec_of(model: str, **options: Any) -> WorkloadSpec:
    seq_len = None if model.startswith("ncf") else SEQ_LEN
    values: dict[str, Any] = {"seq_len": seq_len, "model_options": SMALL[model]}
    return WorkloadSpec(model=model, **(values | options))


def build(model: str, **options: Any) -> Training:
    spec = spec_of(model, **options)
    return build_training(spec, resolve(spec), "cpu")


def gradients(training: Training) -> list[Tensor]:
    """Of one micro-step on the workload's first batch of three."""
    batch = training.make_batch(3)
    torch.manual_seed(7)  # dropout must be drawn alike
    training.micro_step(batch, 1.0)
    trained = [p for p in training.model.parameters() if p.requires_grad]
    found = [p.grad for p in trained if p.grad is not None]
    assert len(found) == len(trained)
    return found


def logits_of(training: Training, batch: tuple[Tensor, ...]) -> Tensor:
    """Of a batch whose inputs are all but the last one or, with a padding mask, all but labels."""
    inputs = (batch[0], batch[2]) if training.spec.model == "roberta-base" else batch[:-1]
    with torch.no_grad():
        logits: Tensor = training.model(*inputs)
    return logits


@pytest.mark.parametrize(
    "model", [name for name, entry in entries().items() if entry.family in FAMILIES]
)
def test_counts_are_the_published_ones(model: str) -> None:
    with torch.device("meta"):
        built = resolve(WorkloadSpec(model=model)).model()
    count = sum(p.numel() for p in built.parameters())
    assert count == entries()[model].parameters


@pytest.mark.parametrize("model", SMALL)
def test_learns_one_batch_by_heart(model: str) -> None:
    training = build(model, optimizer_options={"lr": 0.01}, model_options=without_dropout(model))
    batch = training.make_batch(4)
    loss = training.workload.loss
    first = float(loss(training.model, batch).detach())
    for _ in range(25):
        training.micro_step(batch, 1.0)
        assert training.optimizer_step()
        training.zero_grad()
    assert float(loss(training.model, batch).detach()) < 0.7 * first


def without_dropout(model: str) -> dict[str, Any]:
    has_dropout = "dropout" in entries()[model].config
    return SMALL[model] | ({"dropout": 0.0} if has_dropout else {})


@pytest.mark.parametrize("model", SMALL)
def test_everything_that_is_trained_gets_a_gradient(model: str) -> None:
    training = build(model)
    assert all(bool(g.isfinite().all()) for g in gradients(training))
    frozen = [n for n, p in training.model.named_parameters() if not p.requires_grad]
    assert frozen == (["encoder.positions"] if model == "whisper-tiny" else [])


@pytest.mark.parametrize("model", SMALL)
def test_batches_are_random_fresh_and_repeatable(model: str) -> None:
    one, again, other = (resolve(spec_of(model, seed=seed)) for seed in (0, 0, 1))
    first, second = one.batch(6, CPU), one.batch(6, CPU)
    assert {part.shape[0] for part in first} == {6}
    assert not torch.equal(first[0], second[0])
    assert all(torch.equal(a, b) for a, b in zip(first, again.batch(6, CPU), strict=True))
    assert not torch.equal(first[0], other.batch(6, CPU)[0])


@pytest.mark.parametrize("model", SMALL)
def test_samples_do_not_mix_in_evaluation(model: str) -> None:
    training = build(model, mode=Mode.INFER)
    batch = training.make_batch(3)
    together = logits_of(training, batch)
    alone = [logits_of(training, tuple(part[i : i + 1] for part in batch)) for i in range(3)]
    assert torch.allclose(together, torch.cat(alone), atol=1e-5)


@pytest.mark.parametrize(
    "model", ["bert-base", "roberta-base", "whisper-tiny", "lstm-ptb-medium", "awd-lstm-ptb"]
)
def test_random_start_has_the_loss_of_guessing(model: str) -> None:
    training = build(model, mode=Mode.INFER)
    with torch.no_grad():
        loss = training.workload.loss(training.model, training.make_batch(16))
    assert float(loss) == pytest.approx(math.log(TEXT["vocabulary"]), rel=0.05)


@pytest.mark.parametrize("model", ATTENDING)
def test_eager_attention_equals_the_fused_one(model: str) -> None:
    fused, eager = (build(model, attention=kind, mode=Mode.INFER) for kind in ("sdpa", "eager"))
    batch = fused.make_batch(3)
    assert torch.allclose(logits_of(fused, batch), logits_of(eager, batch), atol=1e-5)
    options = without_dropout(model)
    pair = (build(model, attention=kind, model_options=options) for kind in ("sdpa", "eager"))
    for one, other in zip(*(gradients(training) for training in pair), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("model", SMALL)
def test_recomputed_blocks_give_the_same_gradient(model: str) -> None:
    plain, full = build(model), build(model, activation_checkpointing="full")
    assert full.workload.checkpoint_blocks is not None
    assert len(full.workload.checkpoint_blocks(full.model)) == BLOCKS[model]
    for one, other in zip(gradients(plain), gradients(full), strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    with OperatorCounter() as counter:
        full.micro_step(full.make_batch(3), 1.0)
    assert counter.totals.hardware_flops > 1.1 * counter.totals.model_flops


@pytest.mark.parametrize("precision", [Precision.AMP_BF16, Precision.BF16])
@pytest.mark.parametrize("model", SMALL)
def test_runs_in_bf16(model: str, precision: Precision) -> None:
    training = build(model, precision=precision)
    try:
        found = gradients(training)
    except RuntimeError as error:
        # oneDNN has no recurrent kernel in bf16 for processors without AVX-512.
        if "could not create a primitive descriptor for the LSTM" not in str(error):
            raise
        pytest.skip("this processor has no LSTM in bf16")
    assert all(bool(g.isfinite().all()) for g in found)


@pytest.mark.parametrize("model", [name for name in SMALL if not name.startswith("ncf")])
def test_seq_len_is_what_is_read(model: str) -> None:
    training = build(model, seq_len=9)
    assert training.facts.tokens_per_sample == 9
    batch = training.make_batch(2)
    text = batch[1] if model == "whisper-tiny" else batch[0]
    assert text.shape == (2, 9)
    training.micro_step(batch, 1.0)


@pytest.mark.parametrize("model", SMALL)
def test_shapes_alone_count_the_same_forward_pass(model: str) -> None:
    """What the counts of whole models rest on: nothing is computed on the meta device."""
    workload = resolve(spec_of(model, model_options=without_dropout(model)))
    counts = []
    for place in ("cpu", "meta"):
        with torch.device(place):
            built = workload.model()
        with OperatorCounter() as counter, torch.no_grad():
            workload.loss(built, workload.batch(2, torch.device(place)))
        assert counter.totals.uncounted == ()
        counts.append(counter.totals.model_flops)
    assert counts[0] == counts[1] > 0


@pytest.mark.slow
# PyTorch's own, where it goes on compiling after a part that it left eager.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("model", SMALL)
def test_compiles(model: str) -> None:
    """Into one graph, but for the LSTMs, whose recurrence torch.compile leaves alone."""
    workload = resolve(spec_of(model))
    built = workload.model()
    batch = workload.batch(2, CPU)
    compiled = torch.compile(built, backend="eager", fullgraph="lstm" not in model)
    workload.loss(compiled, batch).backward()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
