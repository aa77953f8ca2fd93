"""Streams computed from two traces are those of a real trace; what does not scale is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from reduced_workloads import REDUCED

from bsprof.predict.stream import Mark, Operand, Operator, Stream
from bsprof.predict.target import Semantics, TraceTarget
from bsprof.predict.trace.run import Tracer
from bsprof.predict.trace.scaling import NotAffine, StreamFamily
from bsprof.records import Category, Phase, WorkloadSpec

QUICK = ("mlp", "ncf")


@pytest.mark.parametrize("semantics", [Semantics.CUDA, Semantics.CPU])
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(spec, id=name, marks=[] if name in QUICK else [pytest.mark.slow])
        for name, spec in REDUCED.items()
    ],
)
def test_a_computed_stream_is_the_traced_one(spec, semantics):
    tracer = Tracer(spec, TraceTarget(semantics=semantics))
    family = StreamFamily.of(tracer.trace(3).stream, tracer.trace(7).stream)
    for size in (2, 12):
        assert family.at(size) == tracer.trace(size).stream


CONTRASTIVE = """
import torch
import torch.nn.functional as F
from torch import nn

from bsprof import Workload


def loss(model, batch):
    features = F.normalize(model(batch), dim=-1)
    logits = features @ features.T
    return F.cross_entropy(logits, torch.arange(len(batch)))


def factory():
    return Workload(
        model=lambda: nn.Linear(8, 8),
        batch=lambda b, device: torch.randn(b, 8, device=device),
        loss=loss,
    )


def pairs():
    return Workload(
        model=lambda: nn.Linear(8, 8),
        batch=lambda b, device: torch.randn(b, 8, device=device),
        loss=lambda model, batch: torch.pdist(model(batch)).mean(),
    )
"""


@pytest.mark.parametrize("factory", ["factory", "pairs"])
@pytest.mark.parametrize("sizes", [(3, 7), (2, 16)])
def test_a_loss_over_pairs_of_samples_is_refused(tmp_path: Path, factory, sizes):
    file = tmp_path / "contrastive.py"
    file.write_text(CONTRASTIVE)
    tracer = Tracer(WorkloadSpec(model=f"{file}:{factory}"), TraceTarget())
    low, high = (tracer.trace(size).stream for size in sizes)
    with pytest.raises(NotAffine):
        StreamFamily.of(low, high)


def made(size: int, nbytes: int, shape: tuple[int, ...], **changes: object) -> Stream:
    """One storage that one operator fills."""
    stream = Stream(
        micro_batch_size=size,
        sizes=(nbytes,),
        categories=(Category.ACTIVATIONS,),
        modules=(0,),
        module_names=("",),
        streams=(0,),
        events=(1, -1),
        marks=(Mark(position=0, update=0, micro_step=0, phase=Phase.FORWARD_BACKWARD),),
        operators=(
            Operator(
                position=1,
                name="aten.relu",
                module=0,
                phase=Phase.FORWARD_BACKWARD,
                backward=False,
                inputs=(),
                outputs=(Operand(shape=shape, dtype="float32", block=0),),
            ),
        ),
    )
    return dataclasses.replace(stream, **changes)


def test_bytes_follow_the_shape_that_fills_them():
    family = StreamFamily.of(made(2, 4 * 2 * 5, (2, 5)), made(5, 4 * 5 * 5, (5, 5)))
    assert family.at(9) == made(9, 4 * 9 * 5, (9, 5))


@pytest.mark.parametrize(
    ("low", "high", "why"),
    [
        (made(2, 16, (2, 2)), made(5, 100, (5, 5)), "two dimensions"),
        (made(2, 16, (4,)), made(5, 100, (25,)), "not in proportion"),
        (made(2, 8, (2,)), made(4, 12, (3,)), "not in proportion"),
        (made(2, 64, (1,)), made(4, 128, (1,)), "no shape shows"),
        (made(2, 8, (2,)), made(4, 16, (4,), events=(1,)), "events"),
    ],
)
def test_what_does_not_follow_a_line_is_refused(low, high, why):
    with pytest.raises(NotAffine, match=why):
        StreamFamily.of(low, high)


def test_sizes_of_one_are_left_to_a_trace():
    family = StreamFamily.of(made(2, 8, (2,)), made(5, 20, (5,)))
    with pytest.raises(ValueError, match="begins at 2"):
        family.at(1)


def test_counts_that_are_no_line_do_not_stop_sizes_from_scaling():
    def made(size, flops, **attributes):
        operator = Operator(
            position=0,
            name="aten.something",
            module=0,
            phase=Phase.FORWARD,
            backward=False,
            inputs=(Operand(shape=(size, 4), dtype="float32"),),
            outputs=(),
            attributes={"flops": flops, **attributes},
        )
        return Stream(
            micro_batch_size=size,
            sizes=(),
            categories=(),
            modules=(),
            module_names=("",),
            streams=(),
            events=(),
            marks=(),
            operators=(operator,),
        )

    family = StreamFamily.of(made(2, 25), made(4, 52))
    assert family.at(8).operators[0].attributes["flops"] == pytest.approx(106, abs=3)
    exact = StreamFamily.of(made(2, 20, reads="8,16"), made(4, 40, reads="16,16"))
    assert exact.at(8).operators[0].attributes == {"flops": 80, "reads": "32,16"}
