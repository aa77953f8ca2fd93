"""Keeps one worker while it is clean, replaces it after trouble, and says what happened.

The rule of replacement: a worker is kept while its allocated bytes return to their baseline, and
ended after any out-of-memory, crash, kill, time-out or error, and after every size when the
workload is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bsprof.errors import (
    BsprofError,
    DeviceUnavailable,
    MeasurementError,
    UnknownDevice,
    UsageError,
    WorkloadError,
)
from bsprof.measure import wire
from bsprof.measure.classify import classify_exit
from bsprof.measure.raw import Counts, Effort, RawPoint
from bsprof.measure.supervisor import Death, Worker
from bsprof.records import (
    DeviceSnapshot,
    Environment,
    Failure,
    PointStatus,
    WorkloadFacts,
    WorkloadKey,
    WorkloadSpec,
)
from bsprof.records.codec import from_json, to_json
from bsprof.workloads.key import key_differences

_RAISED_AGAIN = {
    e.__name__: e for e in (UsageError, WorkloadError, UnknownDevice, DeviceUnavailable)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A request that did not end in an answer.

    Attributes:
        error: The error to raise where nothing else can be done; None for a death.
        began: Whether the worker had begun with the request.
        ambiguous: Whether a smaller size in a fresh worker has to decide what this means.
    """

    status: PointStatus
    failure: Failure
    began: bool = True
    ambiguous: bool = False
    error: BsprofError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a worker found when it built the workload."""

    device: DeviceSnapshot
    facts: WorkloadFacts
    key: WorkloadKey
    environment: Environment
    device_key: str


class Crew:
    """The current worker of a sweep, if there is one. Use as a context manager.

    A spare starts beside the first worker, so that both import torch at the same time and nothing
    is being timed meanwhile. It then waits, without a device, to be the first replacement.

    Args:
        spec: What every worker builds.
        device: Where, as `open_device` understands it.
        memory_limit_bytes: The user's limit; None uses what is free.
        limits: Seconds that each phase may last.
        on_phase: Called with the name of each phase that a worker enters.
    """

    def __init__(
        self,
        spec: WorkloadSpec,
        device: str,
        memory_limit_bytes: int | None,
        *,
        limits: wire.PhaseLimits | None = None,
        on_phase: Callable[[str], None] | None = None,
    ) -> None:
        self._spec = spec
        self._device = device
        self._memory_limit_bytes = memory_limit_bytes
        self._limits = limits
        self._on_phase = on_phase
        self._worker: Worker | None = None
        self._spare: Worker | None = None
        self.built: Built | None = None
        self.workers_used = 0
        self.released = True  # whether every worker got the memory that the first one had

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_exc: object) -> None:
        try:
            self.dismiss()
        finally:
            if self._spare is not None:
                self._spare.end()

    def dismiss(self) -> None:
        """End the current worker; the next request gets a fresh one."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def build(self) -> Trouble | None:
        """Have a worker with the workload built; a built one is kept.

        Raises:
            UsageError: the workload is another than the first worker built.
        """
        if self._worker is not None:
            return None
        self._worker, self._spare = self._spare or self._start(), None
        if self.workers_used == 0:
            self._spare = self._start()
        self.workers_used += 1
        answer = self._ask(
            {
                "type": "build",
                "workload": to_json(self._spec),
                "device": self._device,
                "memory_limit_bytes": self._memory_limit_bytes,
                "usable_bytes": self.built.device.usable_bytes if self.built else None,
            }
        )
        if isinstance(answer, Trouble):
            return answer
        built = Built(
            device=from_json(DeviceSnapshot, answer["device"]),
            facts=from_json(WorkloadFacts, answer["facts"]),
            key=from_json(WorkloadKey, answer["key"]),
            environment=from_json(Environment, answer["environment"]),
            device_key=str(answer["device_key"]),
        )
        self.released = self.released and bool(answer["released"])
        if self.built is None:
            self.built = built
        elif changed := key_differences(self.built.key, built.key):
            raise UsageError(
                f"{self._spec.model} changed while it was being measured",
                found="; ".join(changed),
                next_step="sweep anew; finished points of the first version are kept",
            )
        return None

    def request(self, kind: str, **fields: Any) -> dict[str, Any] | Trouble:
        """Build if needed, then ask; a worker that is no longer clean is ended afterwards.

        Trouble that came before the request itself (a worker that was gone already, a rebuild
        that failed) is no size's fault: it is tried once more in a fresh worker.
        """
        answer = self._build_and_ask(kind, fields)
        if isinstance(answer, Trouble) and not answer.began:
            answer = self._build_and_ask(kind, fields)
        if isinstance(answer, dict) and answer.get("clean") is False:
            self.dismiss()
        return answer

    def _build_and_ask(self, kind: str, fields: dict[str, Any]) -> dict[str, Any] | Trouble:
        trouble = self.build()
        if trouble is not None:
            return replace(trouble, began=False)
        return self._ask({"type": kind, **fields})

    def measure(self, micro_batch_size: int, effort: Effort) -> RawPoint | Trouble:
        """One size, in the current worker; in a fresh one when the workload is compiled."""
        if self._spec.compile:
            self.dismiss()
        answer = self.request("measure", micro_batch_size=micro_batch_size, effort=to_json(effort))
        if isinstance(answer, Trouble):
            return answer
        return from_json(RawPoint, answer["raw"])

    def count(self, micro_batch_size: int) -> tuple[Counts, WorkloadKey] | Trouble:
        """Operators, FLOPs and bytes of one eager, untimed micro-step, and the workload's key."""
        answer = self.request("count", micro_batch_size=micro_batch_size)
        if isinstance(answer, Trouble):
            return answer
        return from_json(Counts, answer["counts"]), from_json(WorkloadKey, answer["key"])

    def _start(self) -> Worker:
        return Worker(limits=self._limits, on_phase=self._on_phase)

    def _ask(self, message: dict[str, Any]) -> dict[str, Any] | Trouble:
        assert self._worker is not None
        answer = answer_of(self._worker, message)
        if isinstance(answer, Trouble):
            self.dismiss()
        return answer


def answer_of(worker: Worker, message: dict[str, Any]) -> dict[str, Any] | Trouble:
    """What a worker answers to a request; after trouble it is to be ended."""
    reply = worker.ask(message)
    if isinstance(reply, Death):
        return _death(reply)
    if reply.payload["type"] == "error":
        return _error(reply.payload, worker.phase, worker.tail())
    return reply.payload


def _death(death: Death) -> Trouble:
    if death.timed_out_s is not None:
        reason = f"no sign of life for {death.timed_out_s:g} s while in phase {death.phase}"
        status, ambiguous = PointStatus.TIMEOUT, False
    else:
        verdict = classify_exit(death.exit_status, death.oom_kills, death.tail)
        reason, status, ambiguous = verdict.reason, verdict.status, verdict.ambiguous
    failure = Failure(
        reason=reason, phase=death.phase, tail=death.tail, exit_status=death.exit_status
    )
    return Trouble(status=status, failure=failure, began=death.began, ambiguous=ambiguous)


def _error(payload: dict[str, Any], phase: str, printed: tuple[str, ...]) -> Trouble:
    tail = tuple(payload["tail"]) or printed
    failure = Failure(
        reason=payload["reason"] or payload["message"],
        phase=phase,
        error_type=payload["error_type"],
        location=payload.get("location"),
        tail=tail,
        requested_bytes=payload["requested_bytes"],
    )
    status = PointStatus(payload["status"])
    return Trouble(
        status=status,
        failure=failure,
        ambiguous=payload["ambiguous"],
        error=_bsprof_error(payload),
    )


def _bsprof_error(payload: dict[str, Any]) -> BsprofError | None:
    told = payload.get("bsprof")
    if told is not None:
        kind = _RAISED_AGAIN.get(payload["error_type"], MeasurementError)
        return kind(told["doing"], found=told["found"], next_step=told["next_step"])
    return None
