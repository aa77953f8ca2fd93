"""Traced with the CPU's semantics, a step takes the memory that a real run on the CPU takes."""

from __future__ import annotations

import pytest
import torch
from reduced_workloads import CONVOLUTIONAL, DENSE, RECURRENT, TRANSFORMERS
from trace_ground_truth import check

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
    # Not torch.backends.mkldnn.flags: it sets TF32 as well, and warns.
    torch._C._set_mkldnn_enabled(False)
    try:
        check(spec, kernels_own_share=0.005)
    finally:
        torch._C._set_mkldnn_enabled(True)


@pytest.mark.parametrize("spec", cases(CONVOLUTIONAL))
def test_a_convolutional_step_takes_what_a_real_one_takes_but_for_kernels_buffers(spec):
    check(spec, kernels_own_share=None)
