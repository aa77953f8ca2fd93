"""Terms and shares of a workload that was really traced."""

from __future__ import annotations

import pytest
from made_runs import device

from bsprof.predict.allocator import AllocatorRules, replay
from bsprof.predict.target import Protocol, Software, TraceTarget
from bsprof.predict.terms import library_insertions, parallelise
from bsprof.predict.terms.sharding import GATHERED
from bsprof.predict.trace.run import Tracer
from bsprof.records import Phase, WorkloadSpec

RANKS = 4


@pytest.fixture(scope="module")
def traced():
    spec = WorkloadSpec(model="gpt-tiny", ema=True)
    return Tracer(spec, TraceTarget()).trace(2, Protocol(windows=(1, 1)))


def step_bytes(stream, insertions=()):
    """Live bytes of the steady optimizer step."""
    parts = replay(stream, insertions, AllocatorRules.of(Software(), None), None).parts
    return [p.allocated_bytes for p in parts if p.phase is Phase.OPTIMIZER_STEP][-1]


def test_a_share_of_the_optimizer_step(traced):
    """Weights, their average, gradients, Adam's two and one temporary set: all are sharded."""
    alone = step_bytes(traced.stream)
    shared = step_bytes(*parallelise(traced.stream, "fsdp", RANKS))
    assert alone == pytest.approx(6 * traced.facts.parameter_bytes, rel=0.01)
    assert shared == pytest.approx(alone / RANKS, rel=0.02)


def test_every_parameter_is_gathered_once_a_pass_save_the_root(traced):
    _, insertions = parallelise(traced.stream, "fsdp", RANKS, ("blocks",))
    gathered = [i.bytes for i in insertions if i.name == GATHERED]
    root, *blocks = gathered[:3]  # of the first micro-step: root, forward, backward
    assert len(gathered) == 2 * 3
    assert blocks[0] == blocks[1]
    assert root + blocks[0] == traced.facts.parameter_bytes


def test_two_threads_multiply(traced):
    stream = traced.stream
    blocks = [i for i in library_insertions(stream, device((9, 0)), Software()) if i.until is None]
    assert [i.bytes for i in blocks] == [32 * 2**20] * 2
    forward, backward = (
        next(o.position for o in stream.operators if "mm" in o.name and o.backward is back)
        for back in (False, True)
    )
    assert [i.position for i in blocks] == [forward, backward]
