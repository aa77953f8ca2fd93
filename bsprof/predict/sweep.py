"""Predicts a sweep: one workload on devices that need not be here; nothing is run on them.

The parent's side, without torch: a worker traces the workload's own step, and the streams are
replayed here under each device's capacity.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bsprof.errors import UsageError
from bsprof.measure.events import EventKind, Listener, SweepEvent
from bsprof.measure.telling import point_line
from bsprof.measure.wire import PhaseLimits
from bsprof.predict.allocator import AllocatorRules
from bsprof.predict.forecast import Forecast
from bsprof.predict.memory import MemoryModel
from bsprof.predict.profiles import Answer, predicted_profile
from bsprof.predict.replays import Replays
from bsprof.predict.room import Conditions
from bsprof.predict.software import software_of
from bsprof.predict.target import Protocol, Software, TraceTarget
from bsprof.predict.targets import trace_target
from bsprof.predict.terms import Strategy
from bsprof.predict.traces import Traces
from bsprof.predict.worker import TraceWorker
from bsprof.records import DeviceSpec, Point, Profile, SweepPlan, WorkloadSpec
from bsprof.store import profile_path, save, store_folder
from bsprof.units import format_bytes, format_count, format_seconds
from bsprof.workloads.names import check_model

ALONE = "none"
"""How one rank shares the work: not at all."""


def predict_sweep(
    spec: WorkloadSpec | str,
    device: DeviceSpec,
    *,
    plan: SweepPlan | None = None,
    software: Software | None = None,
    world_size: int = 1,
    parallel: str | None = None,
    allocator_conf: str | None = None,
    other_bytes: int = 0,
    output: Path | None = None,
    store: Path | None = None,
    on_event: Listener | None = None,
    limits: PhaseLimits | None = None,
) -> Profile:
    """The predicted profile of a workload on one device; see `predict_sweeps`.

    Args:
        device: Where; `bsprof.find_device("rtx-4090")` looks one up.
        output: The profile's file; None puts it into the store.
    """
    [profile] = predict_sweeps(
        spec,
        [device],
        plan=plan,
        software=software,
        world_size=world_size,
        parallel=parallel,
        allocator_conf=allocator_conf,
        other_bytes=other_bytes,
        output=output,
        store=store,
        on_event=on_event,
        limits=limits,
    )
    return profile


def predict_sweeps(
    spec: WorkloadSpec | str,
    devices: Sequence[DeviceSpec],
    *,
    plan: SweepPlan | None = None,
    software: Software | None = None,
    world_size: int = 1,
    parallel: str | None = None,
    allocator_conf: str | None = None,
    other_bytes: int = 0,
    output: Path | None = None,
    store: Path | None = None,
    on_event: Listener | None = None,
    limits: PhaseLimits | None = None,
) -> tuple[Profile, ...]:
    """Predict the memory of a workload on several devices, tracing it as rarely as is exact.

    Args:
        spec: The workload, or just its name or `file.py:factory`.
        devices: Where.
        plan: What to try; None looks for the largest size and shows the curve up to it.
        software: Whose rules apply; None is the installed torch with its usual libraries.
        world_size: Data-parallel ranks.
        parallel: `none`, `ddp`, `fsdp`, `zero1`, `zero2` or `zero3`; None is `ddp` where there are
            several ranks.
        allocator_conf: As in `PYTORCH_CUDA_ALLOC_CONF`; None is unset.
        other_bytes: What a desktop or other processes use of each device.
        output: The profile's file, for one device; None puts profiles into the store.
        store: Folder of profiles; None is `BSPROF_STORE` or `profiles`.
        on_event: Called as the prediction goes on.
        limits: Seconds that a worker may stay silent, by phase.

    Returns:
        A profile for each device, in their order.

    Raises:
        UsageError: an option that cannot be.
        WorkloadError: the user's model, factory, batch or loss is at fault.
        MeasurementError: this machine's memory does not suffice to trace it.
        OutputError: a profile cannot be written.
    """
    if isinstance(spec, str):
        spec = WorkloadSpec(model=spec)
    check_model(spec.model)
    plan = plan or SweepPlan()
    software = software or software_of()
    strategy = _strategy(world_size, parallel)
    conditions = [
        Conditions(
            device=device,
            software=software,
            world_size=world_size,
            parallel=strategy,
            allocator_conf=allocator_conf,
            memory_limit_bytes=plan.memory_limit_bytes,
            other_bytes=other_bytes,
            cudnn_benchmark=spec.cudnn_benchmark,
            precision=spec.precision,
        )
        for device in devices
    ]
    run = _Run(spec, plan, on_event or (lambda _event: None))
    rules = AllocatorRules.of(software, allocator_conf)
    store = store if store is not None else store_folder()
    profiles = []
    with TraceWorker(limits=limits, on_phase=run.phase) as worker:
        traces: dict[TraceTarget, tuple[Traces, Replays]] = {}
        for given in conditions:
            target = trace_target(given.device, software)
            if target not in traces:
                traces[target] = (run.traces(worker, target), Replays(rules))
            profile = run.profile(given, *traces[target], rules)
            save(profile, output or profile_path(profile, store))
            profiles.append(profile)
    run.say("end", f"predicted in {format_seconds(run.elapsed_s())}")
    return tuple(profiles)


class _Run:
    """One call of `predict_sweeps`."""

    def __init__(self, spec: WorkloadSpec, plan: SweepPlan, listener: Listener) -> None:
        self._spec = spec
        self._plan = plan
        self._listener = listener
        self._started = time.monotonic()
        self._done = 0

    def traces(self, worker: TraceWorker, target: TraceTarget) -> Traces:
        """The workload traced for a target, as far as the plan needs it."""
        traces = Traces(
            worker,
            self._spec,
            target,
            Protocol(),
            on_trace=lambda b: self.say("phase", f"tracing micro-batch {b}"),
        )
        cap = None if self._plan.micro_batch_sizes else self._cap(None)
        traces.prepare(self._plan.micro_batch_sizes, cap)
        return traces

    def profile(
        self, conditions: Conditions, traces: Traces, replays: Replays, rules: AllocatorRules
    ) -> Profile:
        """The profile of one device."""
        began = time.monotonic()
        created_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self._say_start(conditions, traces)
        cap = self._cap(traces.facts.dataset_size)
        model = MemoryModel(traces.at, conditions, replays)
        forecast = Forecast(model, smallest=traces.smallest(cap), cap=cap)
        explicit = self._plan.micro_batch_sizes
        # One size that was asked for says nothing of the others without another trace.
        largest = forecast.largest() if len(explicit) != 1 else None
        sizes = tuple(sorted(explicit)) or forecast.sizes(largest)
        points = forecast.points(sizes, largest, on_point=self._say_point)
        answer = Answer(
            spec=self._spec,
            plan=self._plan,
            created_at=created_at,
            facts=traces.facts,
            key=traces.key,
            notes=traces.notes,
            allocator_notes=rules.notes,
            traced_sizes=traces.traced_sizes,
            points=points,
            largest=largest,
            after_flush=forecast.largest_after_flush(int(largest.value)) if largest else None,
            outside=model.outside,
            duration_s=time.monotonic() - began + traces.seconds,
        )
        return predicted_profile(answer, conditions)

    def phase(self, name: str) -> None:
        """A worker entered a phase."""
        self.say("phase", name)

    def say(self, kind: EventKind, text: str, point: Point | None = None) -> None:
        """Tell the listener."""
        self._listener(SweepEvent(kind=kind, text=text, point=point, done=self._done))

    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._started

    def _cap(self, dataset_size: int | None) -> int | None:
        sizes = (self._plan.max_micro_batch_size, self._plan.dataset_size, dataset_size)
        return min((b for b in sizes if b is not None), default=None)

    def _say_point(self, point: Point) -> None:
        self._done += 1
        self.say("point", point_line(point), point)

    def _say_start(self, conditions: Conditions, traces: Traces) -> None:
        parameters = format_count(traces.facts.parameter_count)
        self.say(
            "start",
            f"{self._spec.model} ({parameters} parameters) predicted for "
            f"{conditions.device.title}, {format_bytes(conditions.usable_bytes())} usable",
        )


def _strategy(world_size: int, parallel: str | None) -> str:
    """How the ranks share the work.

    Raises:
        UsageError: an unknown strategy, one for a single rank, or none for several.
    """
    if parallel is None:
        return ALONE if world_size == 1 else Strategy.DDP.value
    known = (ALONE, *(strategy.value for strategy in Strategy))
    if parallel not in known:
        raise UsageError(
            f"unknown way to share work {parallel!r}", next_step=f"use one of {', '.join(known)}"
        )
    if parallel != ALONE and world_size == 1:
        raise UsageError(
            f"--parallel {parallel} has no effect with one rank",
            next_step="add --world-size, or leave it out",
        )
    if parallel == ALONE and world_size > 1:
        raise UsageError(
            f"{world_size} ranks that share nothing are not data parallel",
            next_step="use --parallel ddp, or leave --world-size out",
        )
    return parallel
