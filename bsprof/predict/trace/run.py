"""Runs the workload's own step on fake tensors and hands back the stream of its storages.

For the worker alone: it imports torch and the user's code, and changes both while it traces.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)

from bsprof.errors import WorkloadError
from bsprof.predict.cuda.semantics import cuda_semantics
from bsprof.predict.stream import Stream
from bsprof.predict.target import Protocol, TraceTarget, ZeroGrad
from bsprof.predict.trace.building import build_model
from bsprof.predict.trace.compiled import CompiledModel
from bsprof.predict.trace.compiled_tracker import CompiledTracker
from bsprof.predict.trace.convert import Fakes, faked, movable
from bsprof.predict.trace.known import KnownResults
from bsprof.predict.trace.modules import ModuleStack
from bsprof.predict.trace.places import place_of
from bsprof.predict.trace.recorder import Recorder
from bsprof.predict.trace.tracker import StreamTracker, quiet_collector
from bsprof.records import Category, Note, Phase, WorkloadFacts, WorkloadKey, WorkloadSpec
from bsprof.workloads.batches import map_tensors, tensors_in
from bsprof.workloads.faults import user_code
from bsprof.workloads.key import workload_key
from bsprof.workloads.optimizers import state_tensors
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training

DEVICE = "cpu"
"""Where fake tensors say they are: PyTorch without a GPU refuses much on others."""

STEADY = Protocol()
"""What `bsprof sweep` watches: a first update, and a steady one with a window of two."""

_UNKNOWN = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What a trace found.

    Attributes:
        stream: Storages, in order.
        facts: Of the workload, as built.
        notes: What could not be done as asked, and what had to be chosen.
        key: Of the workload; its operators are those of the last traced micro-step.
    """

    stream: Stream
    facts: WorkloadFacts
    notes: tuple[Note, ...]
    key: WorkloadKey


class Tracer:
    """A workload whose step can be traced at several sizes; the model is built once.

    Args:
        spec: What is run.
        target: The device, as far as it decides which operators run.

    Raises:
        UsageError: an option that cannot be, or without effect.
        WorkloadError: the user's code raised, or the model cannot be built here.
    """

    def __init__(self, spec: WorkloadSpec, target: TraceTarget) -> None:
        self.spec = spec
        self._target = target
        self._notes: tuple[Note, ...] = ()
        if spec.compile:
            spec = replace(spec, compile=False)
        # Autotuning is a device's; the CPU that stands in for it refuses the switch.
        self._eager_spec = replace(spec, cudnn_benchmark=False)
        self._workload = resolve(spec)
        torch.manual_seed(spec.seed)

        def make() -> nn.Module:
            with user_code(f"cannot build the model of {spec.model}"):
                return self._workload.model()

        self._model, notes = build_model(make, spec.model)
        self._notes += notes
        self._tokens = self._workload.tokens_per_sample
        if self._tokens is None and self._workload.count is not None:
            self._tokens = _counted_tokens(self._workload)

    def trace(self, micro_batch_size: int, protocol: Protocol = STEADY) -> Traced:
        """The stream of a run at one size, from the model's way onto the device to the last update.

        Raises:
            WorkloadError: the user's code raised; or it reads values that a trace does not have
                (the line and the operator are named).
            UsageError: an option without effect.
        """
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        mode.cache_enabled = False  # `KnownResults` has it, and asks only for what it has not
        fakes = Fakes(mode)
        with ExitStack() as stack:
            stack.enter_context(quiet_collector())
            if isinstance(self._model, nn.Module):
                stack.enter_context(faked(self._model, fakes))
            stack.enter_context(_told(self.spec.model))
            run = _Run(self, micro_batch_size, protocol, fakes)
            try:
                return run.traced(mode, self._target)
            finally:
                run.tracker.stop()
                del run


class _Run:
    """One trace."""

    def __init__(
        self, tracer: Tracer, micro_batch_size: int, protocol: Protocol, fakes: Fakes
    ) -> None:
        self._tracer = tracer
        self._size = micro_batch_size
        self._protocol = protocol
        self._fakes = fakes
        self._recorder = Recorder()
        self._modules = ModuleStack(tracer._model)
        self._compiled: CompiledModel | None = None
        watches = CompiledTracker if tracer.spec.compile else StreamTracker
        self.tracker = watches(KnownResults(fakes.template()), self._modules, self._recorder)
        self._training: Training
        self._first_operator = 0

    def traced(self, mode: FakeTensorMode, target: TraceTarget) -> Traced:
        """Build, run, and gather."""
        tracer = self._tracer
        with (
            cuda_semantics(target),
            mode,
            self.tracker,
            self.tracker.causal,
            self._modules.following(),
        ):
            self.tracker.mark(-1, -1, None)
            with movable(self._arrived):
                training = self._build()
            if isinstance(self.tracker, CompiledTracker):
                self._compiled = CompiledModel(training.model, mode, self.tracker)
                training._runs = self._compiled
            if training.optimizer is None:
                self._infer(training)
            else:
                self._train(training)
        operators = [name for _, name, *_ in self._recorder.operators[self._first_operator :]]
        return Traced(
            stream=self._recorder.stream(self._size, self._modules.names),
            facts=training.facts,
            notes=(
                *tracer._notes,
                *training.notes,
                *self._values_read(),
                *(self._compiled.notes if self._compiled else ()),
            ),
            key=workload_key(tracer.spec, training, operators),
        )

    def _values_read(self) -> tuple[Note, ...]:
        if not self.tracker.values_read:
            return ()
        places = ", ".join(self.tracker.values_read)
        return (
            Note(
                code="value-stood-in",
                message=f"the step reads values of tensors, for which 1 stood in: {places}",
                hint="a trace has no values; what depends on them may differ",
            ),
        )

    def _arrived(self, tensor: Tensor) -> None:
        self.tracker.follow(tensor, Category.WEIGHTS)

    def _build(self) -> Training:
        tracer = self._tracer
        # Tokens are counted already: on real tensors.
        workload = replace(tracer._workload, model=lambda: tracer._model, count=None)
        training = build_training(tracer._eager_spec, workload, DEVICE)
        training.facts = replace(training.facts, tokens_per_sample=tracer._tokens)
        self._modules.add(training.model)
        self._label(training)
        return training

    def _make_batch(self, training: Training) -> Any:
        """A batch of fake tensors; made of real ones where its function reads values."""
        try:
            batch = training.make_batch(self._size)
        except WorkloadError:
            with self.tracker.lifted():
                batch = training.make_batch(self._size)
        batch = map_tensors(self._fakes.of, batch)
        for tensor in tensors_in(batch):
            self.tracker.follow(tensor, Category.ACTIVATIONS)
        return batch

    def _infer(self, training: Training) -> None:
        tracker = self.tracker
        batch = self._make_batch(training)
        for update in range(len(self._protocol.windows)):
            self._first_operator = len(self._recorder.operators)
            tracker.mark(update, 0, Phase.FORWARD)
            training.micro_step(batch, 1.0)
            gc.collect()
            tracker.mark(update, -1, None)

    def _train(self, training: Training) -> None:
        protocol, tracker = self._protocol, self.tracker
        batch = None if protocol.fresh_batch else self._make_batch(training)
        for update, window in enumerate(protocol.windows):
            for micro_step in range(window):
                if protocol.fresh_batch:
                    batch = self._make_batch(training)
                self._micro_step(training, batch, update, micro_step)
            tracker.mark(update, -1, Phase.OPTIMIZER_STEP)
            training.optimizer_step()
            self._label(training)
            gc.collect()
            tracker.mark(update, -1, None)
            if protocol.zero_grad is ZeroGrad.AFTER_STEP:
                self._zero_grad(training)

    def _micro_step(self, training: Training, batch: Any, update: int, micro_step: int) -> None:
        tracker, zero_grad = self.tracker, self._protocol.zero_grad
        phase = Phase.ACCUMULATION if micro_step else Phase.FORWARD_BACKWARD
        self._first_operator = len(self._recorder.operators)
        tracker.mark(update, micro_step, phase)
        if micro_step == 0 and zero_grad is ZeroGrad.BEFORE_FORWARD:
            self._zero_grad(training)
        if micro_step == 0 and zero_grad is ZeroGrad.BEFORE_BACKWARD:
            tracker.before_backward = lambda: self._zero_grad(training)
        training.micro_step(batch, 1.0)
        gc.collect()
        self._label(training)

    def _zero_grad(self, training: Training) -> None:
        assert training.optimizer is not None
        training.optimizer.zero_grad(set_to_none=self._protocol.set_to_none)

    def _label(self, training: Training) -> None:
        """Whose the storages are that outlive a part of the run."""
        parameters = list(training.model.parameters())
        self.tracker.label((p.grad for p in parameters if p.grad is not None), Category.GRADIENTS)
        if training.optimizer is not None:
            self.tracker.label(state_tensors(training.optimizer), Category.OPTIMIZER_STATE)
        self.tracker.label((*parameters, *training.model.buffers()), Category.WEIGHTS)
        if training.average is not None:
            self.tracker.label(training.average.tensors(), Category.WEIGHTS)


def _counted_tokens(workload: Any) -> int | None:
    """Tokens per sample by the workload's own count of one real batch; None where it counts none.

    The random state is as before.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            with user_code("cannot make a batch of 1 samples"):
                batch = workload.batch(1, torch.device(DEVICE))
        except WorkloadError:
            return None  # told where a size is traced, if one of a single sample is
    with user_code("cannot count the tokens of a batch"):
        tokens = int(workload.count(batch))
    return tokens if tokens > 1 else None


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Names the line and the operator where the workload needs values that a trace lacks."""
    try:
        yield
    except _UNKNOWN as error:
        operator = getattr(error, "func", None) or (error.args[0] if error.args else "?")
        raise WorkloadError(
            f"cannot trace {name}: its step depends on the values of tensors",
            found=f"{place_of(error)}: {operator}",
            next_step="let shapes and branches depend on shapes only (no .item(), .tolist(), "
            "boolean masks or `if tensor`), or measure it on the device instead",
        ) from error


def trace_stream(
    spec: WorkloadSpec, micro_batch_size: int, target: TraceTarget, protocol: Protocol = STEADY
) -> Traced:
    """The stream of one size: see `Tracer`."""
    return Tracer(spec, target).trace(micro_batch_size, protocol)
