from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from bsprof.accounting.live import LiveTracker, training_tensors
from bsprof.errors import UsageError
from bsprof.records import Category, WorkloadSpec
from bsprof.workloads.freezing import freeze
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training
from bsprof.workloads.workload import Workload

DEPTH, WIDTH = 6, 16


def deep() -> nn.Module:
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(DEPTH)]
    return nn.Sequential(*layers)


def build(**options: Any) -> Training:
    workload = Workload(
        model=deep,
        batch=lambda b, device: torch.randn(b, WIDTH, device=device),
        loss=lambda model, batch: model(batch).square().mean(),
    )
    return build_training(WorkloadSpec(model="mine", **options), workload, "cpu")


def frozen(model: nn.Module) -> list[str]:
    return [name for name, parameter in model.named_parameters() if not parameter.requires_grad]


def test_frozen_parameters_never_change_and_the_rest_does() -> None:
    training = build(freeze=("0.*", "*.0.bias"), optimizer_options={"lr": 0.1})
    assert frozen(training.model) == ["0.0.weight", *(f"{index}.0.bias" for index in range(DEPTH))]
    before = {name: p.detach().clone() for name, p in training.model.named_parameters()}
    for _ in range(3):
        training.micro_step(training.make_batch(4), 1.0)
        training.optimizer_step()
        training.zero_grad()
    for name, parameter in training.model.named_parameters():
        assert torch.equal(parameter, before[name]) is not parameter.requires_grad
    assert training.facts.trainable_parameter_count == (DEPTH - 1) * WIDTH * WIDTH
    assert training.facts.parameter_count == DEPTH * (WIDTH + 1) * WIDTH
    assert training.notes == ()


def test_frozen_first_layers_need_no_activations_gradients_or_state() -> None:
    size, peaks, resident = 256, [], []
    for patterns in ((), ("[0-2].*",)):
        training = build(freeze=patterns)
        batch = training.make_batch(size)
        tracker = LiveTracker(
            lambda training=training: training_tensors(training.model, training.optimizer)
        )
        with tracker:
            training.micro_step(batch, 1.0)
        training.optimizer_step()
        peaks.append(tracker.peak_by_category)
        resident.append(training.resident_bytes())
    # Each layer leaves the output of its tanh; that of the third is what the fourth needs.
    saved = peaks[0][Category.ACTIVATIONS] - peaks[1][Category.ACTIVATIONS]
    assert saved == 2 * size * WIDTH * 4
    assert sum(peaks[1].values()) == sum(peaks[0].values()) - saved
    layer = 4 * (WIDTH + 1) * WIDTH
    assert resident[0][Category.GRADIENTS] - resident[1][Category.GRADIENTS] == 3 * layer
    state = resident[0][Category.OPTIMIZER_STATE] - resident[1][Category.OPTIMIZER_STATE]
    assert state == 3 * (2 * layer + 2 * 4)
    assert resident[0][Category.WEIGHTS] == resident[1][Category.WEIGHTS]


@pytest.mark.parametrize("pattern", ["head.weight", "tokens.*"])
def test_one_name_of_a_tied_weight_freezes_it_and_the_other_is_told(pattern: str) -> None:
    spec = WorkloadSpec(model="gpt-tiny", seq_len=8, freeze=(pattern,))
    training = build_training(spec, resolve(spec), "cpu")
    facts = training.facts
    assert facts.parameter_count - facts.trainable_parameter_count == 1000 * 256
    other = {"head.weight": "tokens.weight", "tokens.*": "head.weight"}[pattern]
    (note,) = training.notes
    assert note.code == "freeze-tied"
    assert f"also freezes {other}:" in note.message
    both = WorkloadSpec(model="gpt-tiny", seq_len=8, freeze=("head.weight", "tokens.*"))
    assert build_training(both, resolve(both), "cpu").notes == ()


def test_adapters_can_be_frozen_too() -> None:
    spec = WorkloadSpec(model="gpt-tiny", seq_len=8, lora_rank=2, freeze=("blocks.[01].*",))
    training = build_training(spec, resolve(spec), "cpu")
    assert training.facts.trainable_parameter_count == 2 * 2 * (256 + 768)


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (("blocks.9.*",), "--freeze blocks.9.* matches no parameter"),
        (("0.0",), r"near: 0.0.\*"),
        (("0.0.wieght",), "near: 0.0.weight"),
        (("zzzzzzzzzzzz",), "parameters: 0.0.weight, 0.0.bias, 1.0.weight"),
        (("*",), r"--freeze \* leaves nothing to train"),
        (("*.weight", "*.bias"), r"--freeze \*.weight --freeze \*.bias leaves nothing to train"),
    ],
)
def test_patterns_that_cannot_be(patterns: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(freeze=patterns)


def test_freezing_what_is_frozen_has_no_effect() -> None:
    model = deep()
    model.get_parameter("0.0.weight").requires_grad_(False)
    with pytest.raises(UsageError, match=r"--freeze 0.0.weight has no effect"):
        freeze(model, ("0.0.weight",))
    assert freeze(model, ("0.*", "0.0.bias")) == ()
    assert frozen(model) == ["0.0.weight", "0.0.bias"]
