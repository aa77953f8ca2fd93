"""A real CPU run of a traced protocol, as torch.profiler saw its memory: what a trace must equal.

Nothing of bsprof's own accounting takes part. A storage that begins and ends inside one call of an
operator that the trace knows as a whole is a buffer of that operator's kernel: no trace shows it.
Peaks are given with and without these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile, record_function

from bsprof.predict.stream import Stream
from bsprof.predict.target import Protocol, Semantics, TraceTarget
from bsprof.predict.trace.run import trace_stream
from bsprof.records import Mode, Phase, WorkloadSpec
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training

MARK = "bsprof phase "
PHASES = {str(phase): phase for phase in Phase}


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes taken (above zero) or given back, in a phase (None: between updates)."""

    nbytes: int
    phase: Phase | None
    is_kernels_own: bool


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes that were live at one time, and when."""

    nbytes: int
    phase: Phase | None


def real_changes(
    spec: WorkloadSpec, size: int, protocol: Protocol, known: set[str]
) -> list[Change]:
    """Memory events of a real run on the CPU, in order, the building of the model among them.

    Args:
        spec: What is run.
        size: Samples of a micro-step.
        protocol: How the run is put together; one batch, gradients dropped after the step.
        known: Operators that a trace shows as a whole: `aten::convolution`.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        with record_function(MARK + "build"):
            training = build_training(spec, resolve(spec), "cpu")
            batch = training.make_batch(size)
        for window in protocol.windows:
            _update(training, batch, window)
        with record_function(MARK + "end"):
            pass
    assert found.profiler is not None
    tree = found.profiler.kineto_results.experimental_event_tree()
    return list(_changes(tree, known))


def _update(training: Training, batch: Any, window: int) -> None:
    infers = training.spec.mode is Mode.INFER
    for micro_step in range(1 if infers else window):
        phase = Phase.ACCUMULATION if micro_step else Phase.FORWARD_BACKWARD
        with record_function(MARK + (Phase.FORWARD if infers else phase)):
            training.micro_step(batch, 1.0)
    if not infers:
        with record_function(MARK + Phase.OPTIMIZER_STEP):
            training.optimizer_step()
        with record_function(MARK + "between"):
            training.zero_grad()


def _changes(tree: list[Any], known: set[str]) -> Iterator[Change]:
    """Changes of memory in the order of their times."""
    found: list[tuple[int, int, int, str, int | None]] = []  # time, address, bytes, phase, call

    def walk(node: Any, phase: str, call: int | None) -> None:
        kind = node.typed[0]
        if kind == _EventType.TorchOp:
            name = node.name
            if name.startswith(MARK):
                phase = name.removeprefix(MARK)
            elif call is None and name in known:
                call = id(node)
        elif kind == _EventType.Allocation:
            fields = node.extra_fields
            found.append((node.start_time_ns, fields.ptr, fields.alloc_size, phase, call))
        for child in node.children:
            walk(child, phase, call)

    for root in tree:
        walk(root, "", None)
    found.sort(key=lambda item: item[0])
    marks = sorted(
        (node.start_time_ns, node.name.removeprefix(MARK))
        for root in tree
        for node in _nodes(root)
        if node.typed[0] == _EventType.TorchOp and node.name.startswith(MARK)
    )
    begun: dict[int, int] = {}
    own: set[int] = set()
    for number, (_, address, size, _, call) in enumerate(found):
        if size > 0:
            begun[address] = number
        elif address in begun:
            start = begun.pop(address)
            if call is not None and found[start][4] == call:
                own |= {start, number}
    # The backward runs in the calling thread, but a free may stand outside of any range.
    at = 0
    for number, (time, _, size, _, _) in enumerate(found):
        while at + 1 < len(marks) and marks[at + 1][0] <= time:
            at += 1
        name = marks[at][1] if marks and marks[0][0] <= time else ""
        yield Change(nbytes=size, phase=PHASES.get(name), is_kernels_own=number in own)


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def real_peak(changes: list[Change], *, with_kernels_own: bool) -> Peak:
    """The peak within phases of a real run."""
    return _peak((c.nbytes, c.phase) for c in changes if with_kernels_own or not c.is_kernels_own)


def traced_peak(stream: Stream) -> Peak:
    """The peak within phases of a traced run."""

    def changes() -> Iterator[tuple[int, Phase | None]]:
        marks = list(stream.marks)
        phase: Phase | None = None
        for position, event in enumerate(stream.events):
            while marks and marks[0].position <= position:
                phase = marks.pop(0).phase
            size = stream.sizes[abs(event) - 1]
            yield (size if event > 0 else -size), phase

    return _peak(changes())


def _peak(changes: Iterator[tuple[int, Phase | None]]) -> Peak:
    live, best = 0, Peak(0, None)
    for size, phase in changes:
        live += size
        if phase is not None and live > best.nbytes:
            best = Peak(live, phase)
    return best


def known_operators(stream: Stream) -> set[str]:
    """The operators of a trace as the profiler names them."""
    return {op.name.replace(".", "::", 1) for op in stream.operators}


def check(spec: WorkloadSpec, *, kernels_own_share: float | None, size: int = 3) -> None:
    """A trace and a real run of a workload.

    Peaks agree: within 0.5 % without what kernels take for themselves, in the same phase.

    Args:
        kernels_own_share: Within what share they agree with it; None where it is a term of its own.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        protocol = Protocol()
        stream = trace_stream(spec, size, TraceTarget(semantics=Semantics.CPU), protocol).stream
        changes = real_changes(spec, size, protocol, known_operators(stream))
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
