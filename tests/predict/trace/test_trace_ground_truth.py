"""Traced with the CPU's semantics, a step takes the memory that a real run on the CPU takes."""

from __future__ import annotations

import pytest
import torch
from reduced_workloads import CONVOLUTIONAL, DENSE, RECURRENT, TRANSFORMERS
from trace_ground_truth import known_operators, real_changes, real_peak, traced_peak

from bsprof.predict.target import Protocol, Semantics, TraceTarget
from bsprof.predict.trace.run import trace_stream
from bsprof.records import WorkloadSpec

QUICK = ("mlp", "convnet")


def cases(specs: dict[str, WorkloadSpec]) -> list[object]:
    return [
        pytest.param(spec, id=name, marks=[] if name in QUICK else [pytest.mark.slow])
        for name, spec in specs.items()
    ]


@pytest.mark.parametrize("spec", cases(DENSE | TRANSFORMERS))
def test_a_step_without_convolutions_takes_what_a_real_one_takes(spec):
    check(spec, kernels_own_share=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("spec", cases(RECURRENT))
def test_recurrent_layers_take_what_real_ones_take(spec):
    # oneDNN keeps a workspace of its own making, which nothing but oneDNN knows.
    with torch.backends.mkldnn.flags(enabled=False):
        check(spec, kernels_own_share=0.005)


@pytest.mark.parametrize("spec", cases(CONVOLUTIONAL))
def test_a_convolutional_step_takes_what_a_real_one_takes_but_for_kernels_buffers(spec):
    check(spec, kernels_own_share=None)


def check(spec: WorkloadSpec, *, kernels_own_share: float | None) -> None:
    """Peaks agree: within 0.5 % without what kernels take for themselves, in the same phase.

    Args:
        kernels_own_share: Within what share they agree with it; None where it is a term of its own.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        protocol = Protocol()
        stream = trace_stream(spec, 3, TraceTarget(semantics=Semantics.CPU), protocol).stream
        changes = real_changes(spec, 3, protocol, known_operators(stream))
    finally:
        torch.set_num_threads(threads)
    traced = traced_peak(stream)
    tensors = real_peak(changes, with_kernels_own=False)
    everything = real_peak(changes, with_kernels_own=True)
    assert traced.nbytes == pytest.approx(tensors.nbytes, rel=0.005)
    assert traced.phase is tensors.phase
    assert everything.nbytes >= tensors.nbytes
    if kernels_own_share is not None:
        assert traced.nbytes == pytest.approx(everything.nbytes, rel=kernels_own_share)
