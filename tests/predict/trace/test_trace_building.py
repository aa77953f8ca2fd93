"""Models are built without their weights' bytes, whatever their constructors do."""

from __future__ import annotations

import resource
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bsprof.errors import WorkloadError
from bsprof.predict.target import TraceTarget
from bsprof.predict.trace import building
from bsprof.predict.trace.building import build_model
from bsprof.predict.trace.run import trace_stream
from bsprof.records import WorkloadSpec
from bsprof.workloads.resolve import resolve


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.third = nn.Parameter(torch.ones(3, dtype=torch.bfloat16), requires_grad=False)
        self.register_parameter("again", self.third)
        self.register_buffer("table", torch.arange(5))
        self.blocks = nn.ModuleList(
            nn.Dropout(p.item())
            for p in torch.linspace(0, 0.5, 3)  # as drop-path schedules do
        )
        nn.init.trunc_normal_(self.first.weight)


class Reads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.scale = self.layer.weight.detach().abs().max().item()


def test_parameters_are_meta_and_ties_stay():
    model, notes = build_model(Tied, "tied")
    assert notes == ()
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert model.second.weight is model.first.weight
    assert model.again is model.third
    assert model.third.dtype is torch.bfloat16
    assert not model.third.requires_grad
    assert isinstance(model.first.weight, nn.Parameter)
    assert model.table.tolist() == [0, 1, 2, 3, 4]
    assert [block.p for block in model.blocks] == [0.0, 0.25, 0.5]


def test_registering_is_as_before_afterwards():
    build_model(Tied, "tied")
    assert nn.Linear(2, 2).weight.device.type == "cpu"


def test_a_constructor_that_reads_its_weights_is_built_for_real():
    model, notes = build_model(Reads, "reads")
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    assert model.scale > 0
    assert [note.code for note in notes] == ["built-otherwise"]
    assert "test_trace_building.py" in notes[0].message


def test_where_nothing_works_the_line_and_the_memory_are_named(monkeypatch):
    monkeypatch.setattr(building, "host_memory", lambda: SimpleNamespace(available_bytes=60))
    with pytest.raises(WorkloadError) as caught:
        build_model(Reads, "reads")
    assert "test_trace_building.py" in caught.value.found
    assert "more than 64 B" in caught.value.next_step  # the weights that were one too many


def test_large_random_weights_cost_nothing_and_small_tables_are_random():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.small = torch.empty(8).uniform_(1, 2)
            self.experts = nn.Parameter(torch.empty(64, 2**20).normal_())

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model, _ = build_model(Model, "experts")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB of 256 MiB
    assert (model.small >= 1).all()


STEP = """
import torch
from torch import nn

from bsprof import Workload


def workload(loss, batch=None):
    def random(size, device):
        return torch.randn(size, 8).to(device)

    return Workload(model=lambda: nn.Linear(8, 8), batch=batch or random, loss=loss)


def shown():
    def loss(model, batch):
        value = model(batch).mean()
        assert isinstance(value.item(), float)
        return value

    return workload(loss)


def masked():
    return workload(lambda model, batch: model(batch)[batch > 0].mean())


def branching():
    return workload(lambda model, batch: model(batch).mean() * (2 if (batch > 0).any() else 1))


def real_batch():
    def batch(size, device):
        longest = int(torch.randint(3, 9, (size,)).max())
        return torch.ones(size, 8)[:, :longest].to(device)

    def loss(model, batch):
        return model(torch.nn.functional.pad(batch, (0, 8 - batch.shape[1]))).mean()

    return workload(loss, batch)
"""


def line_of(code: str) -> int:
    (number,) = [n for n, line in enumerate(STEP.splitlines(), start=1) if code in line]
    return number


@pytest.fixture
def step(tmp_path: Path) -> Path:
    file = tmp_path / "values.py"
    file.write_text(STEP)
    return file


def test_a_loss_that_is_shown_is_traced_with_a_note(step):
    traced = trace_stream(WorkloadSpec(model=f"{step}:shown"), 2, TraceTarget())
    assert [note.code for note in traced.notes] == ["value-stood-in"]
    assert f"values.py:{line_of('.item()')}" in traced.notes[0].message


@pytest.mark.parametrize(
    ("factory", "code", "operator"),
    [("masked", "[batch > 0]", "nonzero"), ("branching", ".any()", "_local_scalar_dense")],
)
def test_a_step_that_depends_on_values_is_refused_with_its_line(step, factory, code, operator):
    with pytest.raises(WorkloadError) as caught:
        trace_stream(WorkloadSpec(model=f"{step}:{factory}"), 2, TraceTarget())
    assert f"values.py:{line_of(code)}:" in caught.value.found
    assert operator in caught.value.found


def test_a_batch_that_is_made_from_values_is_made_for_real(step):
    stream = trace_stream(WorkloadSpec(model=f"{step}:real_batch"), 4, TraceTarget()).stream
    assert stream.sizes[2] % (4 * 4) == 0  # after weight and bias: four rows of floats


def test_a_model_is_real_again_after_its_trace():
    from bsprof.predict.trace.run import Tracer

    tracer = Tracer(WorkloadSpec(model="mlp"), TraceTarget())
    model = tracer._model
    before = {name: (id(p), p.device) for name, p in model.named_parameters()}
    tracer.trace(2)
    assert {name: (id(p), p.device) for name, p in model.named_parameters()} == before
    assert resolve(tracer.spec).model().training


@pytest.mark.slow
def test_eight_billion_parameters_take_little_host_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spec = WorkloadSpec(model="llama-3.1-8b", activation_checkpointing="full")
    traced = trace_stream(spec, 2, TraceTarget())
    assert traced.facts.parameter_count > 8e9
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # KiB: 1 GiB
