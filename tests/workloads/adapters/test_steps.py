from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import Mode, WorkloadSpec
from bsprof.workloads.training import Training, build_training
from bsprof.workloads.workload import Workload


def net() -> nn.Module:
    return nn.Linear(4, 1)


def batch(size: int, device: torch.device) -> Tensor:
    return torch.ones(size, 4, device=device)


def step(model: nn.Module, batch: Tensor) -> None:
    model(batch).square().mean().backward()


def build(step: Any, *, mode: Mode = Mode.TRAIN, **options: Any) -> Training:
    workload = Workload.from_step(step, model=net, batch=batch, **options)
    return build_training(WorkloadSpec(model="theirs", mode=mode), workload, "cpu")


def test_a_step_leaves_the_gradients_of_its_own_loop() -> None:
    training = build(step, optimizer=lambda params: torch.optim.SGD(params, lr=0.1))
    theirs = net()
    theirs.load_state_dict(training.model.state_dict())
    training.micro_step(training.make_batch(3), 0.5)
    step(theirs, batch(3, torch.device("cpu")))
    for ours, other in zip(training.model.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(ours.grad, other.grad)  # type: ignore[arg-type]
    assert training.optimizer_step()
    assert training.facts.optimizer == "SGD"


def test_a_step_that_scales_gets_the_scale() -> None:
    scales = []

    def scaling(model: nn.Module, batch: Tensor, *, scale: float) -> Tensor:
        scales.append(scale)
        loss: Tensor = model(batch).mean() * scale
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    training = build(scaling)
    training.micro_step(training.make_batch(3), 0.25)
    training.micro_step(training.make_batch(3), 1.0)
    assert scales == [0.25, 1.0]
    micro_step = training.workload.micro_step
    assert micro_step is not None
    assert "scale" in inspect.signature(micro_step).parameters


@pytest.mark.parametrize(
    ("forgetful", "found"),
    [
        (lambda model, batch: model(batch).mean(), "a loss that nothing went backward from"),
        (lambda model, batch: None, ""),  # noqa: ARG005
        (lambda model, batch: (step(model, batch), model.zero_grad())[0], ""),
    ],
)
def test_a_step_without_a_gradient_is_refused(forgetful: Any, found: str) -> None:
    training = build(forgetful)
    with pytest.raises(WorkloadError, match="left no gradient") as caught:
        training.micro_step(training.make_batch(3), 1.0)
    assert found in caught.value.found
    assert "loss.backward()" in caught.value.next_step


def test_inference_needs_a_loss() -> None:
    training = build(step, mode=Mode.INFER)
    with pytest.raises(UsageError, match="--mode infer has nothing to run") as caught:
        training.micro_step(training.make_batch(3), 1.0)
    assert "loss=" in caught.value.next_step
    whole = build(step, mode=Mode.INFER, loss=lambda model, batch: model(batch).mean())
    whole.micro_step(whole.make_batch(3), 1.0)


def test_what_else_is_known_is_kept() -> None:
    workload = Workload.from_step(
        step,
        model=net(),
        batch=batch,
        count=lambda batch: batch.numel(),
        size=lambda batch: len(batch),
        dataset_size=9,
    )
    training = build_training(WorkloadSpec(model="theirs"), workload, "cpu")
    assert training.facts.tokens_per_sample == 4
    assert training.facts.dataset_size == 9
    assert training.observed_size(training.make_batch(2)) == 2


def test_a_step_of_another_signature_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"`step` .* callable as step\(model, batch\)"):
        Workload.from_step(lambda batch: None, model=net, batch=batch)  # noqa: ARG005
