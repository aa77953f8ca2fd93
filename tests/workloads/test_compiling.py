from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bsprof.errors import WorkloadError
from bsprof.records import Mode, WorkloadSpec
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training
from bsprof.workloads.workload import Workload


class Net(nn.Module):
    """One layer, with a graph break if asked for."""

    def __init__(self, breaks: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.breaks = breaks

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        if self.breaks:
            torch._dynamo.graph_break()
        return y * 2


@pytest.fixture
def eager_backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Capture graphs as ever, but run them without generating code: seconds instead of a minute."""
    compile_ = torch.compile

    def compile_eagerly(module: nn.Module, **options: Any) -> Any:
        return compile_(module, backend="eager", **options)

    monkeypatch.setattr(torch, "compile", compile_eagerly)
    yield
    torch._dynamo.reset()


def build(loss: Any, *, breaks: bool = False, **options: Any) -> Training:
    workload = Workload(
        model=lambda: Net(breaks),
        batch=lambda b, device: torch.randn(b, 4, device=device),
        loss=loss,
    )
    spec = WorkloadSpec(model="mine", compile=True, **options)
    return build_training(spec, workload, "cpu")


def mean(model: nn.Module, batch: Tensor) -> Tensor:
    y: Tensor = model(batch).mean()
    return y


@pytest.mark.usefixtures("eager_backend")
def test_compiled_step_trains_and_has_nothing_to_note() -> None:
    training = build(mean)
    training.micro_step(training.make_batch(3), 1.0)
    assert training.optimizer_step()
    assert training.check_compiled() == ()


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's own, while it captures
@pytest.mark.usefixtures("eager_backend")
def test_graph_breaks_leave_a_note() -> None:
    training = build(mean, breaks=True)
    training.micro_step(training.make_batch(3), 1.0)
    (note,) = training.check_compiled()
    assert note.code == "graph-breaks"
    assert "1 graph break" in note.message


@pytest.mark.usefixtures("eager_backend")
def test_model_that_was_never_called_is_not_silently_eager() -> None:
    training = build(lambda model, batch: model.layer(batch).mean())
    training.micro_step(training.make_batch(3), 1.0)
    with pytest.raises(WorkloadError, match="--compile has compiled nothing"):
        training.check_compiled()


@pytest.mark.usefixtures("eager_backend")
def test_sizes_are_never_dynamic() -> None:
    training = build(mean, mode=Mode.INFER)
    for graphs, size in enumerate((2, 3, 4), start=1):
        training.micro_step(training.make_batch(size), 1.0)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs


@pytest.mark.usefixtures("eager_backend")
@pytest.mark.parametrize("model", ["mlp", "vit-tiny"])
def test_builtins_compile_as_one_graph(model: str) -> None:
    spec = WorkloadSpec(model=model, compile=True)
    training = build_training(spec, resolve(spec), "cpu")
    training.micro_step(training.make_batch(2), 1.0)
    assert training.check_compiled() == ()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    names = [name for name, _ in training.model.named_parameters()]
    assert not any("_orig_mod" in name for name in names)


def test_without_compile_there_is_nothing_to_check() -> None:
    spec = WorkloadSpec(model="mine")
    workload = Workload(
        model=lambda: Net(False), batch=lambda b, _device: torch.ones(b, 4), loss=mean
    )
    assert build_training(spec, workload, "cpu").check_compiled() == ()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, in its code generator
def test_generated_code_gives_the_same_gradient() -> None:
    gradients = []
    for compiled in (False, True):
        spec = WorkloadSpec(model="mlp", compile=compiled)
        training = build_training(spec, resolve(spec), "cpu")
        training.micro_step(training.make_batch(3), 0.5)
        assert training.check_compiled() == ()
        gradients.append([p.grad for p in training.model.parameters()])
    for eager, generated in zip(*gradients, strict=True):
        assert torch.allclose(eager, generated, atol=1e-6)
