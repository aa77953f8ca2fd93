"""The parent's side of tracing: asks a worker for streams, and says what went wrong (no torch)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bsprof.errors import BsprofError, MeasurementError
from bsprof.measure.crew import Trouble, answer_of
from bsprof.measure.supervisor import Worker
from bsprof.measure.telling import build_error, step_error
from bsprof.measure.wire import PhaseLimits
from bsprof.predict.stream import Stream
from bsprof.predict.target import Protocol, TraceTarget
from bsprof.predict.trace.serial import stream_from_json
from bsprof.records import (
    DeviceSnapshot,
    Note,
    WorkloadFacts,
    WorkloadKey,
    WorkloadSpec,
)
from bsprof.records.codec import from_json, to_json

SESSION = "bsprof.predict.session"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedSize:
    """What a worker found at one micro-batch size.

    Attributes:
        shared_by: Further targets that run the same operators.
        seconds: The worker's time for it, with building the workload where that was not done yet.
    """

    stream: Stream
    facts: WorkloadFacts
    key: WorkloadKey
    notes: tuple[Note, ...]
    shared_by: tuple[TraceTarget, ...] = ()
    seconds: float


class TraceWorker:
    """One worker that traces, started when it is first asked and replaced when it has died.

    Use as a context manager.

    Args:
        limits: Seconds that each phase may last.

    Attributes:
        on_phase: Called with the name of each phase that the worker enters.
    """

    def __init__(self, *, limits: PhaseLimits | None = None) -> None:
        self.on_phase: Callable[[str], None] = lambda _phase: None
        self._limits = limits
        self._worker: Worker | None = None

    def __enter__(self) -> TraceWorker:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end()

    def trace(
        self,
        spec: WorkloadSpec,
        micro_batch_size: int,
        target: TraceTarget,
        protocol: Protocol,
        others: Sequence[TraceTarget] = (),
    ) -> TracedSize | Trouble:
        """One size, or why it could not be traced.

        Args:
            others: Further targets, of which the answer says whether they share the trace.
        """
        answer = self._ask(
            {
                "type": "trace",
                "workload": to_json(spec),
                "target": to_json(target),
                "protocol": to_json(protocol),
                "others": [to_json(other) for other in others],
                "micro_batch_size": micro_batch_size,
            }
        )
        if isinstance(answer, Trouble):
            return answer
        shared_by = (o for o, shared in zip(others, answer["shared"], strict=True) if shared)
        return replace(traced_size(answer), shared_by=tuple(shared_by))

    def device(self, name: str) -> DeviceSnapshot | Trouble:
        """What a device of this machine says of itself."""
        answer = self._ask({"type": "device", "device": name})
        if isinstance(answer, Trouble):
            return answer
        return from_json(DeviceSnapshot, answer["device"])

    def _ask(self, message: dict[str, Any]) -> dict[str, Any] | Trouble:
        if self._worker is None:
            self._worker = Worker(
                session=SESSION, limits=self._limits, on_phase=lambda phase: self.on_phase(phase)
            )
        answer = answer_of(self._worker, message)
        if isinstance(answer, Trouble) and answer.failure.exit_status is not None:
            self._end()  # it died, or was ended; one that answers with an error goes on
        return answer

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None


def traced_size(answer: Mapping[str, Any]) -> TracedSize:
    """A traced size from its JSON, whichever targets share it."""
    return TracedSize(
        stream=stream_from_json(answer["stream"]),
        facts=from_json(WorkloadFacts, answer["facts"]),
        key=from_json(WorkloadKey, answer["key"]),
        notes=tuple(from_json(Note, note) for note in answer["notes"]),
        seconds=float(answer["seconds"]),
    )


def trace_error(spec: WorkloadSpec, micro_batch_size: int, trouble: Trouble) -> BsprofError:
    """Why a workload could not be traced, as an error to raise."""
    if trouble.error is not None:
        return trouble.error
    if trouble.status.is_too_big:
        return MeasurementError(
            f"tracing {spec.model} ran out of memory on this machine",
            found=trouble.failure.reason,
            next_step="trace it where there is more host memory, or a smaller model",
        )
    if trouble.failure.phase in ("start", "build"):
        return build_error(spec, trouble)
    return step_error(spec, micro_batch_size, trouble.failure)
