"""The fixed list: every program exists and is one work, and no shape is a model's."""

import ast
import inspect
from collections import Counter

import pytest

from bsprof.accounting.work import WorkClass
from bsprof.calibrate import shapes
from bsprof.calibrate.benchmark import CPU, CUDA, Benchmark
from bsprof.calibrate.describe import described
from bsprof.calibrate.measured import Measured, Timed
from bsprof.calibrate.programs import PROGRAMS
from bsprof.calibrate.rows import only_work
from bsprof.calibrate.shapes import benchmarks
from bsprof.predict.cost import steady_costs
from bsprof.predict.target import Semantics, TraceTarget
from bsprof.predict.trace.run import trace_stream
from bsprof.records import DeviceSnapshot, Environment, Precision, WorkloadSpec

SCORED = {
    "mlp": {},
    "convnet": {},
    "gpt-tiny": {},
    "encoder-tiny": {},
    "vit-tiny": {},
    "lstm-ptb-small": {},
    "resnet18": {"image_size": 64},
    "resnet50": {"image_size": 224},
    "gpt2": {},
    "bert-base": {},
    "vit-b-16": {},
    "efficientnet-b0": {},
    "convnext-tiny": {},
}
LARGE = frozenset(list(SCORED)[7:])
"""Built-in models and families of the catalogue, at the sizes that predictions are scored at."""

CONVOLUTIONS = (
    WorkClass.CONVOLUTION_FORWARD,
    WorkClass.CONVOLUTION_DATA,
    WorkClass.CONVOLUTION_WEIGHT,
)


def listed():
    return {b.name: b for kind in (CPU, CUDA) for b in benchmarks(kind)}.values()


def snapshot(kind: str) -> DeviceSnapshot:
    details = {"capability": "9.0"} if kind == CUDA else {}
    return DeviceSnapshot(
        kind=kind, name="Test", capacity_bytes=2**34, usable_bytes=2**34, details=details
    )


def works(kind: str, chosen: list[Benchmark]):
    """The work of each benchmark that has one of its own, beside it."""
    target = TraceTarget(semantics=Semantics(kind), compute_capability=(9, 0))
    streams = described(chosen, target, lambda: None)
    environment = Environment(bsprof="0", python="3", torch="2", platform="here")
    measured = Measured(device=snapshot(kind), environment=environment, timed=())
    for benchmark, stream in zip(chosen, streams, strict=True):
        timed = Timed(benchmark=benchmark, operators=tuple(stream.operators), samples=())
        yield benchmark, stream.operators, only_work(timed, measured)


def test_the_list_reads_nothing_but_its_own_record():
    tree = ast.parse(inspect.getsource(shapes))
    imported = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert imported == {"__future__", "collections.abc", "bsprof.calibrate.benchmark"}


@pytest.mark.parametrize("kind", [CPU, CUDA])
def test_benchmarks_are_named_once_and_exist(kind):
    found = benchmarks(kind)
    assert max(Counter(b.name for b in found).values()) == 1
    assert {b.program for b in found} <= PROGRAMS.keys()
    assert all(kind in b.kinds for b in found)


@pytest.mark.parametrize("kind", [CPU, CUDA])
def test_a_benchmark_is_one_work(kind):
    first = {(b.program, b.precision, b.dims.get("last")): b for b in benchmarks(kind)}
    for benchmark, operators, work in works(kind, list(first.values())):
        if benchmark.program.startswith(("host.", "step.")):
            assert operators, benchmark.name
        elif (kind, benchmark.precision) == (CPU, "fp32"):
            assert work is not None, (benchmark.name, [o.name for o in operators])
            assert work.bytes > 0
        # On a GPU layout copies and casts stand beside some kernels: those make no row.


def test_classes_that_models_are_made_of_are_timed_on_both_kinds():
    for kind in (CPU, CUDA):
        chosen = [b for b in benchmarks(kind) if b.precision == "fp32"]
        one_of_each = {b.program: b for b in chosen if not b.program.startswith("host.")}
        found = {w.work_class for _b, _o, w in works(kind, list(one_of_each.values())) if w}
        wanted = {
            WorkClass.MATMUL,
            WorkClass.BATCHED_MATMUL,
            *CONVOLUTIONS,
            WorkClass.ATTENTION_FORWARD,
            WorkClass.ATTENTION_BACKWARD,
            WorkClass.NORMALISATION,
            WorkClass.NORMALISATION_BACKWARD,
            WorkClass.SOFTMAX,
            WorkClass.ELEMENTWISE,
            WorkClass.REDUCTION,
            WorkClass.EMBEDDING,
            WorkClass.EMBEDDING_BACKWARD,
            WorkClass.LOSS,
            WorkClass.POOLING,
            WorkClass.COPY,
            WorkClass.RANDOM,
        }
        assert wanted <= found, wanted - found


@pytest.mark.parametrize(
    "model",
    [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in SCORED],
)
def test_no_shape_is_a_models(model):
    """Widths of a layer in either order, a convolution's channels, kernel and side, attention's
    length and size of heads: all that a shape has beside the number of samples."""
    products, convolutions, attentions = set(), set(), set()
    for b in listed():
        dims = b.dims
        if b.program.startswith("product."):
            products.add(frozenset((dims["n"], dims["k"])))
        elif b.program.startswith("convolution."):
            convolutions.add((dims["channels"], dims["filters"], dims["kernel"], dims["side"]))
        elif b.program.startswith("attention."):
            attentions.add((dims["length"], dims["head"]))
    spec = WorkloadSpec(model=model, **SCORED[model])
    stream = trace_stream(spec, 2, TraceTarget(semantics=Semantics.CPU)).stream
    for operator in stream.operators:
        if operator.name in ("aten.convolution", "aten.convolution_backward"):
            images = operator.inputs[1:] if "backward" in operator.name else operator.inputs
            x, weight = images[0].shape, images[1].shape
            if len(x) == 4:
                assert (x[1], weight[0], weight[2], x[2]) not in convolutions, operator
    costs = steady_costs(stream, None, Precision.FP32)
    for work, _count in (*costs.forward, *costs.backward):
        if work.work_class is WorkClass.MATMUL:
            assert (
                not {
                    frozenset(pair)
                    for pair in ((work.n, work.k), (work.m, work.n), (work.m, work.k))
                }
                & products
            ), work
        if work.work_class in (WorkClass.ATTENTION_FORWARD, WorkClass.ATTENTION_BACKWARD):
            assert (work.m, work.k) not in attentions, work
