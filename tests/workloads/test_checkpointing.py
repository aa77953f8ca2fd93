from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import WorkloadSpec
from bsprof.workloads.blocks import parse_checkpointing
from bsprof.workloads.checkpointing import find_blocks
from bsprof.workloads.names import builtin_names
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training
from bsprof.workloads.workload import Workload

SMALL = {"gpt-tiny": {"seq_len": 4}, "encoder-tiny": {"seq_len": 4}}


def build(model: str, checkpointing: str) -> Training:
    options: dict[str, Any] = SMALL.get(model, {})
    spec = WorkloadSpec(model=model, activation_checkpointing=checkpointing, **options)
    return build_training(spec, resolve(spec), "cpu")


def counted(training: Training) -> list[int]:
    """How often each block runs its first submodule in one micro-step."""
    blocks = find_blocks(training.model, training.workload)
    counts = [0] * len(blocks)

    def count(index: int) -> Any:
        def hook(*_: Any) -> None:
            counts[index] += 1

        return hook

    for index, block in enumerate(blocks):
        next(block.children()).register_forward_hook(count(index))
    training.micro_step(training.make_batch(2), 1.0)
    return counts


@pytest.mark.parametrize("model", builtin_names())
def test_every_builtin_recomputes_its_blocks_with_the_same_gradient(model: str) -> None:
    plain, full = build(model, "none"), build(model, "full")
    torch.manual_seed(5)
    assert set(counted(plain)) == {1}
    torch.manual_seed(5)
    assert set(counted(full)) == {2}
    for ours, other in zip(plain.model.parameters(), full.model.parameters(), strict=True):
        if ours.grad is not None and other.grad is not None:
            assert ours.grad.shape == other.grad.shape


def test_gradients_are_those_without_checkpointing() -> None:
    gradients = []
    for checkpointing in ("none", "full"):
        training = build("gpt-tiny", checkpointing)
        batch = training.make_batch(2)
        torch.manual_seed(9)  # dropout must be drawn alike again in the recomputation
        training.micro_step(batch, 1.0)
        gradients.append([p.grad for p in training.model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other)


def test_every_nth_block() -> None:
    assert counted(build("gpt-tiny", "2")) == [1, 2, 1, 2]
    assert counted(build("gpt-tiny", "4")) == [1, 1, 1, 2]


def test_more_than_there_are_blocks_has_no_effect() -> None:
    with pytest.raises(UsageError, match="--activation-checkpointing 5 has no effect"):
        build("gpt-tiny", "5")


@pytest.mark.parametrize("text", ["", "0", "-1", "some", "1.5", "FULL"])
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError, match="write none, full, or a whole number N"):
        parse_checkpointing(text)


class Outer(nn.Module):
    """Two lists of like modules, one within the other, and a list of unlike ones."""

    def __init__(self) -> None:
        super().__init__()
        self.unlike = nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])
        self.empty = nn.ModuleList([nn.ReLU(), nn.ReLU()])
        self.layers = nn.ModuleList([Inner(), Inner(), Inner()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Inner(nn.Module):
    """A block with a list of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.experts[0](x) + self.experts[1](x)
        return y


def workload(**changes: Any) -> Workload:
    values: dict[str, Any] = {"model": None, "batch": None, "loss": None}
    return Workload(**(values | changes))


def test_blocks_are_found_in_the_outermost_list_of_like_modules() -> None:
    model = Outer()
    assert list(find_blocks(model, workload())) == list(model.layers)


def test_model_without_blocks_asks_for_them() -> None:
    with pytest.raises(WorkloadError, match="of like modules in Linear") as caught:
        find_blocks(nn.Linear(3, 3), workload())
    assert "checkpoint_blocks" in caught.value.next_step


def test_own_list_of_blocks_wins() -> None:
    model = Outer()
    chosen = workload(checkpoint_blocks=lambda outer: [outer.layers[1]])
    assert list(find_blocks(model, chosen)) == [model.layers[1]]
