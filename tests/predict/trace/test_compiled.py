"""Traces of compiled models: what is kept, which results are written, and where it stays eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reduced_workloads import REDUCED
from torch import Tensor, fx, nn

from bsprof.predict.target import Protocol, TraceTarget
from bsprof.predict.trace.compiled_plan import schedule_of
from bsprof.predict.trace.run import Traced, Tracer
from bsprof.predict.trace.scaling import StreamFamily
from bsprof.records import Precision, WorkloadSpec
from bsprof.workloads.workload import Workload

ROWS, WIDTH = 4, 256
SHORT = Protocol(windows=(1,))


class Chain(nn.Module):
    """A product, elementwise operators, a product."""

    def __init__(self, *, reads: bool = False) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, 8)
        self.reads = reads

    def forward(self, x: Tensor) -> Tensor:
        """(rows, WIDTH) to (rows, 8)."""
        x = self.first(x)
        if self.reads:
            x = x / float(x.detach().abs().max())
        return self.last(nn.functional.dropout(torch.tanh(x * 2).exp(), 0.1).sigmoid())


def chain() -> Workload:
    return _workload(reads=False)


def reading() -> Workload:
    return _workload(reads=True)


def _workload(*, reads: bool) -> Workload:
    def batch(size: int, device: torch.device) -> Tensor:
        return torch.randn(size * ROWS, WIDTH, device=device).view(size, ROWS, WIDTH)

    return Workload(
        model=lambda: Chain(reads=reads),
        batch=batch,
        loss=lambda model, batch: model(batch).float().sum(),
    )


def trace(spec: WorkloadSpec, size: int) -> Traced:
    return Tracer(spec, TraceTarget()).trace(size, SHORT)


def peak(traced: Traced) -> int:
    held = highest = 0
    for event in traced.stream.events:
        size = traced.stream.sizes[abs(event) - 1]
        held += size if event > 0 else -size
        highest = max(highest, held)
    return highest


def codes(traced: Traced) -> set[str]:
    return {note.code for note in traced.notes}


def test_elementwise_chains_are_one_kernel():
    spec = WorkloadSpec(model=f"{__name__}:chain", compile=True)
    size = 3
    traced = trace(spec, size)
    assert "traced-compiled" in codes(traced)
    stream = traced.stream
    last = len(stream.marks) - 2
    start, end = stream.marks[1].position, stream.marks[last].position
    wide = size * ROWS * WIDTH
    made = [stream.sizes[e - 1] for e in stream.events[start:end] if e > 0]
    # The product, what the last product reads, and their gradients, one of them in place.
    assert made.count(wide * 4) <= 4
    eager = trace(WorkloadSpec(model=f"{__name__}:chain"), size).stream
    assert eager.sizes.count(wide * 4) > stream.sizes.count(wide * 4)


def test_a_model_that_reads_a_value_is_traced_as_an_eager_one():
    compiled = trace(WorkloadSpec(model=f"{__name__}:reading", compile=True), 2)
    eager = trace(WorkloadSpec(model=f"{__name__}:reading"), 2)
    assert "traced-eager" in codes(compiled)
    assert compiled.stream.sizes == eager.stream.sizes
    assert compiled.stream.events == eager.stream.events


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "resnet"])
def test_a_compiled_step_needs_no_more_and_grows_with_the_batch(name):
    spec = REDUCED[name]
    fields: dict[str, Any] = {f: getattr(spec, f) for f in ("model", "model_options", "seq_len")}
    fields["precision"] = Precision.AMP_BF16
    compiled = Tracer(WorkloadSpec(**fields, compile=True), TraceTarget())
    sizes = (16, 24, 32)
    low, high, more = (compiled.trace(size, SHORT) for size in sizes)
    assert "traced-compiled" in codes(low)
    assert peak(low) <= peak(trace(WorkloadSpec(**fields), 16))
    computed = StreamFamily.of(low.stream, high.stream).at(32)
    assert computed.sizes == more.stream.sizes
    assert computed.events == more.stream.events


@pytest.mark.slow
def test_checkpointed_blocks_keep_less():
    spec = REDUCED["gpt2"]
    fields: dict[str, Any] = {f: getattr(spec, f) for f in ("model", "model_options", "seq_len")}
    plain = trace(WorkloadSpec(**fields, compile=True), 8)
    saving = trace(WorkloadSpec(**fields, compile=True, activation_checkpointing="full"), 8)
    assert "traced-compiled" in codes(saving)
    assert peak(saving) < peak(plain)


def planned(build: Any) -> list[str]:
    graph = fx.Graph()
    build(graph)
    return [step.node.name for step in schedule_of(graph).steps]


def test_a_result_that_only_elementwise_operators_read_is_not_written():
    aten = torch.ops.aten

    def build(graph: fx.Graph) -> None:
        x = graph.placeholder("x")
        a = graph.call_function(aten.exp.default, (x,))
        b = graph.call_function(aten.sin.default, (a,))
        c = graph.call_function(aten.mm.default, (b, x))
        d = graph.call_function(aten.cos.default, (c,))
        graph.output((d, b))

    assert planned(build) == ["sin_default", "mm_default", "cos_default"]


def test_of_a_table_its_rows_are_read_and_of_a_split_its_part():
    aten = torch.ops.aten
    graph = fx.Graph()

    def node(made: fx.Node, *shape: int) -> fx.Node:
        made.meta["val"] = torch.empty(shape, device="meta")
        return made

    table, index = node(graph.placeholder("table"), 50, 8), node(graph.placeholder("index"), 3)
    whole = node(graph.placeholder("whole"), 3, 24)
    rows = node(graph.call_function(aten.embedding.default, (table, index)), 3, 8)
    part = node(graph.call_function(aten.slice.Tensor, (whole, 1, 0, 8)), 3, 8)
    added = node(graph.call_function(aten.add.Tensor, (rows, part)), 3, 8)
    summed = node(graph.call_function(aten.sum.dim_IntList, (added, [1])), 3)
    twice = node(graph.call_function(aten.add.Tensor, (part, whole)), 3, 24)
    graph.output((added, summed, twice))

    first, second, third = schedule_of(graph).steps
    assert first.elements == {table: 24, whole: 24}
    assert not first.reduces
    assert (second.elements, second.reduces) == ({}, True)
    assert third.elements == {}  # the part, and the whole of it
    assert set(third.reads) == {whole}


def test_what_a_compiled_trace_says_of_its_kernels():
    found = trace(WorkloadSpec(model=f"{__file__}:chain", compile=True), 8).stream.operators
    inside = [op for op in found if not {"fused", "compiled"}.isdisjoint(op.attributes)]
    assert {op.attributes["operator_class"] for op in inside} >= {"fused", "matmul"}
    for operator in inside:
        if "fused" in operator.attributes and operator.inputs:
            read = [int(part) for part in str(operator.attributes["reads"]).split(",")]
            assert len(read) == len(operator.inputs)
            assert all(r <= o.bytes for r, o in zip(read, operator.inputs, strict=True))
        elif "fused" not in operator.attributes:
            assert operator.attributes["compiled"] is True
            assert operator.attributes["moved"] > 0
