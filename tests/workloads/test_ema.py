from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bsprof.records import Category, Precision, WorkloadSpec
from bsprof.workloads.ema import DECAY, MovingAverage
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training
from bsprof.workloads.workload import Workload


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))


def build(**options: Any) -> Training:
    workload = Workload(
        model=normed,
        batch=lambda b, device: (torch.randn(b, 4, device=device), 1.0),
        loss=lambda model, batch: model(batch[0]).float().square().mean() * batch[1],
    )
    return build_training(WorkloadSpec(model="mine", ema=True, **options), workload, "cpu")


def kept(training: Training) -> list[Tensor]:
    assert training.average is not None
    return list(training.average.tensors())


def test_three_updates_follow_the_formula() -> None:
    training = build(optimizer_options={"lr": 0.1})
    expected = [p.detach().clone() for p in training.model.parameters()]
    for _ in range(3):
        training.micro_step(training.make_batch(5), 1.0)
        training.optimizer_step()
        training.zero_grad()
        expected = [
            DECAY * average + (1 - DECAY) * p.detach()
            for average, p in zip(expected, training.model.parameters(), strict=True)
        ]
    averages = kept(training)[: len(expected)]
    for ours, theirs, weight in zip(averages, expected, training.model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-7)
        assert not torch.allclose(ours, weight, atol=1e-3)
    for ours, buffer in zip(kept(training)[len(expected) :], training.model.buffers(), strict=True):
        assert torch.equal(ours, buffer)


def test_the_copy_counts_as_weights_from_the_start() -> None:
    plain, training = build_plain(), build()
    weights = plain.resident_bytes()[Category.WEIGHTS]
    parameters = 4 * (4 * 8 + 8 + 8 + 8 + 8 + 1)
    assert weights == parameters + 4 * (8 + 8) + 8  # running mean and variance, and a counter
    assert training.resident_bytes() == {
        Category.WEIGHTS: 2 * weights,
        Category.GRADIENTS: 0,
        Category.OPTIMIZER_STATE: 0,
    }
    storages = training.storages()[Category.WEIGHTS]
    assert {t.untyped_storage()._cdata for t in kept(training)} <= {s._cdata for s in storages}
    for each in (plain, training):
        each.micro_step(each.make_batch(5), 1.0)
        each.optimizer_step()
    assert training.resident_bytes() == {
        **plain.resident_bytes(),
        Category.WEIGHTS: 2 * weights,
    }
    assert training.facts == plain.facts


def build_plain() -> Training:
    spec = WorkloadSpec(model="mine")
    return build_training(spec, build().workload, "cpu")


def test_tied_weights_are_kept_once() -> None:
    spec = WorkloadSpec(model="gpt-tiny", seq_len=8, ema=True)
    training = build_training(spec, resolve(spec), "cpu")
    assert training.resident_bytes()[Category.WEIGHTS] == 2 * training.facts.parameter_bytes


def test_what_is_not_trained_is_not_averaged() -> None:
    spec = WorkloadSpec(model="gpt-tiny", seq_len=8, lora_rank=4, ema=True)
    training = build_training(spec, resolve(spec), "cpu")
    adapters = training.facts.trainable_parameter_count
    assert sum(t.numel() for t in kept(training)) == adapters
    resident = training.resident_bytes()
    assert resident[Category.WEIGHTS] == training.facts.parameter_bytes + 4 * adapters


def test_a_skipped_step_moves_no_average() -> None:
    training = build(precision=Precision.AMP_FP16)
    before = [t.clone() for t in kept(training)]
    inputs = torch.randn(5, 4)
    training.micro_step((inputs, float("inf")), 1.0)
    assert not training.optimizer_step()
    assert all(torch.equal(one, other) for one, other in zip(kept(training), before, strict=True))
    training.zero_grad()
    training.micro_step((inputs, 1.0), 1.0)
    assert training.optimizer_step()
    assert not torch.equal(kept(training)[0], before[0])


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.AMP_BF16])
def test_averages_have_the_type_and_place_of_their_weights(precision: Precision) -> None:
    training = build(precision=precision)
    pairs = zip(kept(training), training.model.parameters(), strict=False)
    assert all(average.dtype == weight.dtype for average, weight in pairs)


def test_buffers_that_appear_or_grow_are_kept_as_they_are() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("table", torch.zeros(2))
    average = MovingAverage(model)
    model.table = torch.ones(3)
    model.register_buffer("late", torch.ones(1, dtype=torch.int64))
    average.update()
    model.table.add_(1)
    average.update()
    *_, table, late = average.tensors()
    assert torch.equal(table, torch.full((3,), 2.0))
    assert torch.equal(late, torch.ones(1, dtype=torch.int64))
    assert late is not model.late
