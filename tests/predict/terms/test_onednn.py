"""Copies around a convolution on a processor."""

import dataclasses

import pytest

from bsprof.predict.stream import Operand, Operator
from bsprof.predict.target import Semantics, Software, TraceTarget
from bsprof.predict.terms.libraries import library_insertions
from bsprof.predict.terms.onednn import layout_copies
from bsprof.predict.trace.run import trace_stream
from bsprof.records import DeviceSpec, Quantity, WorkloadSpec

CPU = DeviceSpec(
    name="cpu",
    title="cpu",
    kind="cpu",
    architecture="cpu",
    compute_units=1,
    nominal_memory_bytes=2**34,
    capacity_bytes=Quantity.exact(2**34),
    flops_per_s={"fp32": 1e11},
    bandwidth_bytes_per_s=1e10,
)


@pytest.fixture(scope="module")
def stream():
    spec = WorkloadSpec(model="convnet")
    return trace_stream(spec, 4, TraceTarget(semantics=Semantics.CPU)).stream


def test_forward_copies_image_weight_and_result(stream):
    operator = next(o for o in stream.operators if o.name == "aten.convolution")
    image, weight = operator.inputs[:2]
    assert layout_copies(operator) == ((image.bytes, weight.bytes, operator.outputs[0].bytes),)


def test_backward_copies_around_each_gradient(stream):
    operator = next(o for o in stream.operators if o.name == "aten.convolution_backward")
    gradient, image, weight = operator.inputs[:3]
    both = {gradient.bytes, image.bytes, weight.bytes}
    assert [set(copies) for copies in layout_copies(operator)] == [both, both]


def test_channels_last_and_other_operators_copy_nothing(stream):
    operator = next(o for o in stream.operators if o.name == "aten.convolution")
    last = tuple(dataclasses.replace(o, channels_last=True) for o in operator.inputs)
    outputs = tuple(dataclasses.replace(o, channels_last=True) for o in operator.outputs)
    assert layout_copies(dataclasses.replace(operator, inputs=last, outputs=outputs)) == ()
    relu = Operator(
        position=0,
        name="aten.relu",
        module=0,
        phase=None,
        backward=False,
        inputs=(Operand(shape=(1,), dtype="float32"),),
        outputs=(),
    )
    assert layout_copies(relu) == ()


def test_a_processor_has_no_other_workspaces(stream):
    found = library_insertions(stream, CPU, Software())
    copied = sum(sum(c) for o in stream.operators for c in layout_copies(o))
    assert sum(insertion.bytes for insertion in found) == copied
    assert {insertion.name for insertion in found} == {"copies around convolutions"}
