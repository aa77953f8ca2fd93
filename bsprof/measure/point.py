"""Measures one micro-batch size: what ran, memory by phase, counts, times (worker side).

Order: a first update in a process or at a size where it differs (lazy optimizer state,
autotuning); a steady update under watch, phase by phase, with an accumulation window of two; the
timed blocks; whole updates for their energy, where the device counts it. Peaks come only from
updates in which optimizer state exists: checked, not assumed, since a gradient scaler may skip the
first steps. Counting is a pass of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from bsprof.accounting.counter import OperatorCounter
from bsprof.accounting.live import LiveTracker, training_tensors
from bsprof.accounting.traffic import tensor_bytes
from bsprof.errors import WorkloadError
from bsprof.measure.devices.protocol import Device, Watch
from bsprof.measure.energy import energy_window
from bsprof.measure.heap import HeapTrace, trace_of
from bsprof.measure.pacer import Pacer
from bsprof.measure.raw import Counts, Effort, EnergyWindow, RawPoint
from bsprof.measure.timing import StepClock
from bsprof.records import Category, MemoryPeaks, Phase
from bsprof.workloads.batches import tensors_in
from bsprof.workloads.training import Training

MAX_SKIPPED_UPDATES = 24
"""A gradient scaler that starts at 2**16 reaches 1 after 16 skipped steps; more is a fault."""


class _Peaks:
    """Largest of each memory quantity over several watched blocks."""

    def __init__(self) -> None:
        self.allocated: dict[Phase, int] = {}
        self.used: dict[Phase, int] = {}
        self.reserved: int | None = None
        self.heap_events: list[tuple[int, int]] = []

    def add(self, phase: Phase, watch: Watch) -> None:
        self.allocated[phase] = max(self.allocated.get(phase, 0), watch.allocated_bytes)
        self.used[phase] = max(self.used.get(phase, 0), watch.device_used_bytes)
        self.heap_events += watch.heap_events
        if watch.reserved_bytes is not None:
            self.reserved = max(self.reserved or 0, watch.reserved_bytes)


class PointMeasurement:
    """One size on one built workload; `run` measures it.

    Args:
        training: The built workload.
        device: Where it lives.
        micro_batch_size: Samples in one micro-step.
        on_phase: Called as each phase and micro-step begins (the worker's heartbeat).
        pacer: Times the machine beside each block; None where its speed does not drift.
        largest_in_process: The largest size that ran in this process before; 0 for none.
    """

    def __init__(
        self,
        training: Training,
        device: Device,
        micro_batch_size: int,
        *,
        on_phase: Callable[[str], None],
        pacer: Pacer | None,
        largest_in_process: int,
    ) -> None:
        self._training = training
        self._device = device
        self._size = micro_batch_size
        self._on_phase = on_phase
        self._pacer = pacer
        self._largest_before = largest_in_process
        self._batch: Any = None
        self._steps_run = 0
        self._gradient_bytes = 0

    def run(self, effort: Effort) -> RawPoint:
        """Measure this size.

        Raises:
            WorkloadError: the batch has another size, or no update ever changed a weight.
            Exception: whatever the workload or the device raises; the caller classifies it.
        """
        training, device = self._training, self._device
        compiles = training.spec.compile
        self._on_phase("compile" if compiles else "step")
        retries_before = device.alloc_retries()
        baseline = device.device_used_now()
        self._batch = training.make_batch(self._size)
        observed = training.observed_size(self._batch)
        first, first_s = None, 0.0
        if not self._largest_before or device.kind != "cpu":  # kernels are not tuned by size there
            first, first_s = self._first_update()
            if device.kind != "cpu":
                device.release()  # what tuning left cached is no part of the steady peak
        notes = (*training.notes, *training.check_compiled())
        self._on_phase("step")
        peaks, micro_s = self._steady_update()
        clock = StepClock(
            training, device, self._batch, lambda: self._on_phase("step"), self._pacer
        )
        if effort.seconds > 0:
            clock.warm_up(micro_s)
            clock.sample(relative_error=effort.relative_error, seconds=effort.seconds)
        self._steps_run += clock.micro_steps_run
        timing = clock.timing()
        energy = self._energy() if effort.seconds > 0 else None
        return RawPoint(
            micro_batch_size=self._size,
            observed_micro_batch_size=observed,
            micro_steps_run=self._steps_run,
            memory=MemoryPeaks(
                resident_bytes=sum(training.resident_bytes().values()),
                allocated_by_phase_bytes=peaks.allocated,
                device_used_by_phase_bytes=peaks.used,
                first_step_allocated_bytes=max(first.allocated.values()) if first else None,
                rss_bytes=device.rss_peak(),
                baseline_device_used_bytes=baseline,
                updates=2 if first else 1,
            ),
            reserved_bytes=peaks.reserved,
            first_step_reserved_bytes=first.reserved if first else None,
            alloc_retries=device.alloc_retries() - retries_before,
            timing=timing,
            resident_by_category_bytes=training.resident_bytes(),
            gradient_bytes=self._gradient_bytes,
            heap=self._heap(peaks),
            inherits_heap=device.kind == "cpu" and self._size < self._largest_before,
            compile_s=max(0.0, first_s - micro_s) if compiles else None,
            energy=energy,
            notes=notes,
        )

    def count(self) -> Counts:
        """Operators, FLOPs, bytes and the owners of the peak of one eager, untimed micro-step."""
        training = self._training
        if self._batch is None:
            self._batch = training.make_batch(self._size)
        self._on_phase("step")
        with eager(training.spec.compile):
            training.micro_step(self._batch, 1.0)  # what a model builds once is not counted
        training.zero_grad()
        tracker = LiveTracker(lambda: training_tensors(training.model, training.optimizer))
        with eager(training.spec.compile), OperatorCounter() as counter, tracker:
            training.micro_step(self._batch, 1.0)
        training.zero_grad()
        totals = counter.totals
        return Counts(
            micro_batch_size=self._size,
            model_flops=totals.model_flops,
            hardware_flops=totals.hardware_flops,
            bytes_moved=totals.bytes_moved,
            kernels=totals.kernels,
            peak_by_category_bytes=tracker.peak_by_category,
            uncounted_operators=totals.uncounted,
            operators=totals.operators,
        )

    def close(self) -> None:
        """Drop the batch and all gradients, and give cached memory back."""
        self._batch = None
        self._training.zero_grad()
        self._device.release()

    def _first_update(self) -> tuple[_Peaks, float]:
        """The first update, its peak, and the seconds of its micro-step (compiling included)."""
        peaks = _Peaks()
        with self._watch() as watch:
            seconds = self._micro_step()
            self._training.optimizer_step()
        peaks.add(Phase.OPTIMIZER_STEP, watch)
        self._training.zero_grad()
        return peaks, seconds

    def _steady_update(self) -> tuple[_Peaks, float]:
        """Peaks by phase of an update in which optimizer state exists; seconds of a micro-step."""
        peaks = _Peaks()
        if self._training.optimizer is None:
            with self._watch() as watch:
                seconds = self._micro_step()
            peaks.add(Phase.FORWARD, watch)
            return peaks, seconds
        for _ in range(MAX_SKIPPED_UPDATES):
            state_existed = self._training.optimizer_state_exists()
            update = _Peaks()
            with self._watch() as watch:
                self._micro_step()
            update.add(Phase.FORWARD_BACKWARD, watch)
            with self._watch() as watch:
                seconds = self._micro_step()
            update.add(Phase.ACCUMULATION, watch)
            self._gradient_bytes = self._training.resident_bytes()[Category.GRADIENTS]
            with self._watch() as watch:
                stepped = self._training.optimizer_step()
            update.add(Phase.OPTIMIZER_STEP, watch)
            self._training.zero_grad()
            if stepped and state_existed:
                return update, seconds
        raise WorkloadError(
            f"the optimizer did not make a steady step in {MAX_SKIPPED_UPDATES} updates",
            found=f"micro-batch size {self._size}: gradients that are not finite",
            next_step="check the loss and the data in this precision, or use amp-bf16",
        )

    def _energy(self) -> EnergyWindow | None:
        window = energy_window(
            self._training, self._device, self._batch, lambda: self._on_phase("step")
        )
        self._steps_run += window.updates if window else 0
        return window

    def _heap(self, peaks: _Peaks) -> HeapTrace | None:
        if not peaks.heap_events:
            return None
        fixed = [
            storage.nbytes()
            for category, storages in self._training.storages().items()
            if category is not Category.GRADIENTS
            for storage in storages
        ]
        batch = [tensor_bytes(t) for t in tensors_in(self._batch)]
        return trace_of(self._size, [*fixed, *batch], peaks.heap_events)

    def _watch(self) -> AbstractContextManager[Watch]:
        resident = sum(self._training.resident_bytes().values())
        return self._device.watch(resident + batch_bytes(self._batch))

    def _micro_step(self) -> float:
        self._on_phase(self._phase())
        self._device.synchronize()
        start = time.perf_counter()
        self._training.micro_step(self._batch, 1.0)
        self._device.synchronize()
        self._steps_run += 1
        return time.perf_counter() - start

    def _phase(self) -> str:
        return "compile" if self._training.spec.compile and self._steps_run == 0 else "step"


def batch_bytes(batch: Any) -> int:
    """Bytes of the tensors in a batch."""
    return sum(tensor_bytes(t) for t in tensors_in(batch))


def eager(compiled: bool) -> AbstractContextManager[Any]:
    """Run a compiled model as it was written, for a pass that has to see its operators."""
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()
