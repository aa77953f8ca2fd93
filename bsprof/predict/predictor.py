"""Predicts one workload on several devices: traces it as rarely as is exact, then asks each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from bsprof.measure.events import EventKind, Listener, SweepEvent
from bsprof.measure.telling import point_line
from bsprof.predict.allocator import AllocatorRules
from bsprof.predict.corrected import Measured, correction_of
from bsprof.predict.correction import NO_CORRECTION
from bsprof.predict.costs import Costs
from bsprof.predict.forecast import Forecast
from bsprof.predict.memory import MemoryModel
from bsprof.predict.profiles import Answer, predicted_profile
from bsprof.predict.replays import Replays
from bsprof.predict.roofline import Roofline
from bsprof.predict.room import Conditions
from bsprof.predict.search import LARGEST
from bsprof.predict.stream import Stream
from bsprof.predict.target import Protocol, TraceTarget
from bsprof.predict.targets import trace_target
from bsprof.predict.timed_points import catalogue_peaks, timed
from bsprof.predict.timing import TimeModel
from bsprof.predict.traces import Traces
from bsprof.predict.whatif import StreamOf, changes_for
from bsprof.predict.worker import TraceWorker
from bsprof.records import Change, Note, Point, Profile, Quantity, SweepPlan, WorkloadSpec
from bsprof.units import format_bytes, format_count, format_seconds

COARSE = 0.05
"""Share to which the largest size is looked for where each size needs a trace of its own."""


class Predictor:
    """Predicts profiles of one workload.

    Args:
        worker: Traces.
        spec: The workload.
        plan: What to try.
        conditions: Of all devices, of one software and one way of running.
        listener: Called as it goes on.
        measured: A profile of the workload, which corrects predicted times.
        bus_bytes_per_s: Between ranks, where the user knows it.
    """

    def __init__(
        self,
        worker: TraceWorker,
        spec: WorkloadSpec,
        plan: SweepPlan,
        conditions: Sequence[Conditions],
        listener: Listener | None = None,
        *,
        measured: Measured | None = None,
        bus_bytes_per_s: float | None = None,
    ) -> None:
        self._worker = worker
        self._spec = spec
        self._plan = plan
        self._listener = listener or (lambda _event: None)
        self._targets = tuple(
            dict.fromkeys(trace_target(given.device, given.software) for given in conditions)
        )
        self._traced: list[tuple[Traces, Replays]] = []
        self._costs: dict[tuple[int, tuple[int, int] | None, float | None], Costs] = {}
        self._measured = measured
        self._bus_bytes_per_s = bus_bytes_per_s
        self._started = time.monotonic()
        self._done = 0
        worker.on_phase = lambda phase: self._say("phase", phase)

    def profile(self, conditions: Conditions) -> Profile:
        """The profile of one device.

        Raises:
            BsprofError: the workload cannot be traced.
        """
        began = time.monotonic()
        created_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        target = trace_target(conditions.device, conditions.software)
        traces, replays = self._traces_for(target, conditions)
        self._say_start(conditions, traces)
        cap = self._cap(traces.facts.dataset_size, traces.cap)
        model = MemoryModel(traces.at, conditions, replays)
        forecast = Forecast(
            model,
            smallest=traces.smallest(cap),
            cap=cap,
            within=0.0 if traces.scales else COARSE,
        )
        explicit = self._plan.micro_batch_sizes
        # Looking for it among sizes that nobody asked for is not worth a trace of each.
        largest = forecast.largest() if traces.scales or not explicit else None
        sizes = tuple(sorted(explicit)) or forecast.sizes(largest)
        timing = self._timing(traces, target, conditions)
        peaks = catalogue_peaks(conditions.device, timing.roofline.launch.value)
        points = forecast.points(
            sizes,
            largest,
            on_point=self._say_point,
            with_time=lambda point: timed(
                point, timing.predict(point.micro_batch_size), peaks, self._spec.precision
            ),
        )
        answer = Answer(
            spec=self._spec,
            plan=self._plan,
            created_at=created_at,
            facts=traces.facts,
            key=traces.key,
            notes=(*traces.notes, *self._unlimited(traces, largest)),
            allocator_notes=replays.rules.notes,
            points=points,
            largest=largest,
            after_flush=forecast.largest_after_flush(int(largest.value)) if largest else None,
            outside=model.outside,
            peaks=peaks,
            timing=timing.provenance,
            changes=self._changes(
                forecast, points, conditions, traces, self._stream_of(target, traces)
            ),
            duration_s=time.monotonic() - began,
        )
        return predicted_profile(answer, conditions)

    def _timing(self, traces: Traces, target: TraceTarget, given: Conditions) -> TimeModel:
        """The time model of one device; works of a size are found once for all that share them."""
        is_processor = given.device.kind == "cpu"
        capability = None if is_processor else target.compute_capability
        cache = float(given.device.l2_bytes or 0) if is_processor else None
        key = (id(traces), capability, cache)
        if key not in self._costs:
            self._costs[key] = Costs(traces.at, capability, self._spec.precision, cache_bytes=cache)
        costs = self._costs[key].at
        correction = NO_CORRECTION
        if self._measured is not None:
            there = self._measured.device
            own = TimeModel(
                costs, traces.at, replace(given, device=there, world_size=1), Roofline.of(there)
            )
            correction = correction_of(
                self._measured.profile, own, same_device=there.name == given.device.name
            )
        return TimeModel(
            costs,
            traces.at,
            given,
            Roofline.of(given.device),
            correction=correction,
            bus_bytes_per_s=self._bus_bytes_per_s,
        )

    def _unlimited(self, traces: Traces, largest: Quantity | None) -> Iterator[Note]:
        """What ends the sizes where memory does not."""
        if traces.cap is not None:
            yield Note(
                code="fails-above",
                message=f"the step fails at micro-batch {traces.cap + 1}, so no size from there on "
                "is predicted: " + traces.reason(traces.cap + 1),
                micro_batch_size=traces.cap + 1,
            )
        elif largest is not None and largest.value >= LARGEST:
            yield Note(
                code="not-limited-by-memory",
                message=f"memory does not end the sizes: {LARGEST:,} still fits, and no larger one "
                "was looked at",
            )

    def end(self) -> None:
        """Tell the listener that all is done."""
        self._say("end", f"predicted in {format_seconds(time.monotonic() - self._started)}")

    def _traces_for(self, target: TraceTarget, given: Conditions) -> tuple[Traces, Replays]:
        """Traces that are exact for a target, as far as the plan needs them."""
        for traces, replays in self._traced:
            if traces.serve(target):
                return traces, replays
        traces = self._new_traces(self._spec, target)
        explicit = self._plan.micro_batch_sizes
        traces.prepare(explicit, None if explicit else self._cap())
        rules = AllocatorRules.of(given.software, given.allocator_conf)
        self._traced.append((traces, Replays(rules)))
        return self._traced[-1]

    def _new_traces(self, spec: WorkloadSpec, target: TraceTarget) -> Traces:
        return Traces(
            self._worker,
            spec,
            target,
            Protocol(),
            others=[other for other in self._targets if other != target],
            on_trace=lambda b: self._say("phase", f"tracing micro-batch {b}"),
        )

    def _stream_of(self, target: TraceTarget, own: Traces) -> StreamOf:
        """What traces a changed workload at one size; the workload itself is traced already."""

        def traced(spec: WorkloadSpec, micro_batch_size: int) -> Stream:
            if spec == self._spec:
                return own.at(micro_batch_size)
            traces = self._new_traces(spec, target)
            traces.prepare([micro_batch_size])
            return traces.at(micro_batch_size)

        return traced

    def _changes(
        self,
        forecast: Forecast,
        points: Sequence[Point],
        conditions: Conditions,
        traces: Traces,
        stream_of: StreamOf,
    ) -> tuple[Change, ...]:
        """What would make the smallest size fit, where nothing does."""
        too_big = [p.micro_batch_size for p in points if p.status.is_too_big]
        if not too_big or any(p.is_ok for p in points):
            return ()
        return changes_for(
            self._spec,
            traces.facts,
            forecast.prediction(min(too_big)),
            conditions,
            stream_of,
            on_idea=lambda name: self._say("phase", f"trying {name}"),
        )

    def _cap(self, *others: int | None) -> int | None:
        sizes = (self._plan.max_micro_batch_size, self._plan.dataset_size, *others)
        return min((b for b in sizes if b is not None), default=None)

    def _say(self, kind: EventKind, text: str, point: Point | None = None) -> None:
        self._listener(SweepEvent(kind=kind, text=text, point=point, done=self._done))

    def _say_point(self, point: Point) -> None:
        self._done += 1
        self._say("point", point_line(point), point)

    def _say_start(self, conditions: Conditions, traces: Traces) -> None:
        parameters = format_count(traces.facts.parameter_count)
        self._say(
            "start",
            f"{self._spec.model} ({parameters} parameters) predicted for "
            f"{conditions.device.title}, {format_bytes(conditions.usable_bytes())} usable",
        )
