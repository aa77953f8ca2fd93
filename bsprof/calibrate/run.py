"""Runs the benchmarks of a device in a worker of their own: the parent's side, without torch."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from typing import Any

from bsprof.calibrate.benchmark import CPU, CUDA, Benchmark
from bsprof.calibrate.measured import Measured, Sample, Timed
from bsprof.calibrate.shapes import benchmarks
from bsprof.calibrate.support import has_precision
from bsprof.errors import MeasurementError, UsageError
from bsprof.measure.crew import Trouble, answer_of
from bsprof.measure.events import EventKind, Listener, SweepEvent
from bsprof.measure.supervisor import Worker
from bsprof.measure.wire import PhaseLimits
from bsprof.predict.software import software_of
from bsprof.predict.stream import Operator
from bsprof.predict.target import Semantics, TraceTarget
from bsprof.predict.trace.serial import stream_from_json
from bsprof.records import DeviceSnapshot, Environment
from bsprof.records.codec import from_json, to_json
from bsprof.units import format_seconds

SESSION = "bsprof.calibrate.session"
SECONDS = 60.0
ROUNDS = 2
"""A slow moment of the machine hits other benchmarks in another round."""
LEAST_S, MOST_S = 0.01, 0.15
"""Of one benchmark in one round: three laps of a fast one, and what no benchmark needs more of."""
ORDER_SEED = 0
_FIRST = ("host.", "step.")
"""What is timed first: little of it, and everything else is corrected by it."""


class Bench:
    """A worker with an open device, replaced when it has died. Use as a context manager.

    Args:
        device: As `open_device` understands it.
        limits: Seconds that each phase may last.
    """

    def __init__(self, device: str, limits: PhaseLimits | None = None) -> None:
        self._name = device
        self._limits = limits
        self._worker: Worker | None = None
        self.device: DeviceSnapshot
        self.environment: Environment

    def __enter__(self) -> Bench:
        self._open()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end()

    def ask(self, kind: str, **fields: Any) -> dict[str, Any] | Trouble:
        """An answer, or why there is none."""
        if self._worker is None:
            self._open()
        assert self._worker is not None
        answer = answer_of(self._worker, {"type": kind, **fields})
        if isinstance(answer, Trouble):
            self._end()  # an error of the device may stick to it
        return answer

    def _open(self) -> None:
        """Start a worker, and have it open the device.

        Raises:
            BsprofError: it cannot.
        """
        self._worker = Worker(session=SESSION, limits=self._limits)
        answer = answer_of(self._worker, {"type": "open", "device": self._name})
        if isinstance(answer, Trouble):
            self._end()
            raise answer.error or MeasurementError(
                f"cannot calibrate {self._name}",
                found=answer.failure.reason,
                next_step="see `bsprof doctor`",
            )
        self.device = from_json(DeviceSnapshot, answer["device"])
        self.environment = from_json(Environment, answer["environment"])

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None


def measure_device(
    device: str = "auto",
    *,
    seconds: float = SECONDS,
    only: Iterable[Benchmark] | None = None,
    on_event: Listener | None = None,
    limits: PhaseLimits | None = None,
) -> Measured:
    """Time the benchmarks on a device of this machine.

    Args:
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        seconds: To spend on timing, about; what does not fit in is left out.
        only: Benchmarks to time; None times all of the fixed list.
        on_event: Called as it goes on.
        limits: Seconds that the worker may stay silent, by phase.

    Raises:
        DeviceUnavailable: there is no such device.
        UsageError: it is of a kind that is not calibrated.
        MeasurementError: nothing could be timed.
    """
    with Bench(device, limits) as bench:
        return _Run(bench, seconds, on_event or (lambda _event: None)).measured(only)


class _Run:
    def __init__(self, bench: Bench, seconds: float, listener: Listener) -> None:
        self._bench = bench
        self._seconds = seconds
        self._listener = listener
        self._samples: dict[str, list[Sample]] = {}
        self._refused: dict[str, str] = {}
        self._failed: dict[str, str] = {}

    def measured(self, only: Iterable[Benchmark] | None) -> Measured:
        began = time.monotonic()
        device = self._bench.device
        if device.kind not in (CPU, CUDA):
            raise UsageError(
                f"cannot calibrate {device.kind}",
                found=f"{device.name}",
                next_step="use --device cpu or --device cuda",
            )
        capability = capability_of(device)
        chosen = [
            b
            for b in (benchmarks(device.kind) if only is None else only)
            if has_precision(b.precision, capability)
        ]
        self._say("start", f"calibrating {device.name}: {len(chosen)} benchmarks")
        operators = self._describe(chosen, capability)
        self._time(chosen)
        timed = tuple(
            Timed(benchmark=b, operators=operators[b.name], samples=tuple(self._samples[b.name]))
            for b in chosen
            if b.name in self._samples
        )
        if not timed:
            raise MeasurementError(
                f"cannot calibrate {device.name}: not one benchmark ran",
                found="; ".join(list(dict.fromkeys(self._failed.values()))[:3]),
                next_step="see `bsprof doctor`",
            )
        known = self._samples.keys() | self._refused.keys() | self._failed.keys()
        duration = time.monotonic() - began
        self._say("end", f"timed {len(timed)} benchmarks in {format_seconds(duration)}")
        return Measured(
            device=device,
            environment=self._bench.environment,
            timed=timed,
            refused=self._refused,
            failed=self._failed,
            skipped=tuple(b.name for b in chosen if b.name not in known),
            duration_s=duration,
        )

    def _describe(
        self, chosen: Sequence[Benchmark], capability: tuple[int, int] | None
    ) -> dict[str, tuple[Operator, ...]]:
        target = TraceTarget(
            semantics=Semantics.CPU if capability is None else Semantics.CUDA,
            compute_capability=capability or TraceTarget().compute_capability,
            software=software_of(),
        )
        self._say("phase", "reading what the benchmarks run")
        answer = self._bench.ask(
            "describe", benchmarks=[to_json(b) for b in chosen], target=to_json(target)
        )
        if isinstance(answer, Trouble):
            raise answer.error or MeasurementError(
                "cannot read what the benchmarks run",
                found=answer.failure.reason,
                next_step="report it, with the versions that `bsprof doctor` shows",
            )
        streams = map(stream_from_json, answer["streams"])
        return {b.name: tuple(s.operators) for b, s in zip(chosen, streams, strict=True)}

    def _time(self, chosen: Sequence[Benchmark]) -> None:
        end = time.monotonic() + self._seconds
        for number in range(ROUNDS):
            order = _order(chosen, number)
            for place, benchmark in enumerate(order):
                left = end - time.monotonic()
                if left <= 0:
                    return
                if benchmark.name in self._refused or benchmark.name in self._failed:
                    continue
                waiting = len(order) - place + len(order) * (ROUNDS - 1 - number)
                share = min(MOST_S, max(LEAST_S, left / waiting))
                self._say(
                    "phase",
                    f"{benchmark.name} ({place + 1} of {len(order)}, round {number + 1})",
                )
                self._one(benchmark, share)

    def _one(self, benchmark: Benchmark, seconds: float) -> None:
        answer = self._bench.ask("time", benchmark=to_json(benchmark), seconds=seconds)
        if isinstance(answer, Trouble):
            failure = answer.failure
            raised = failure.error_type is not None and failure.tail
            self._failed[benchmark.name] = failure.tail[-1] if raised else failure.reason
        elif "refused" in answer:
            self._refused[benchmark.name] = str(answer["refused"])
        else:
            sample = from_json(Sample, answer["sample"])
            self._samples.setdefault(benchmark.name, []).append(sample)

    def _say(self, kind: EventKind, text: str) -> None:
        self._listener(SweepEvent(kind=kind, text=text, done=len(self._samples)))


def _order(chosen: Sequence[Benchmark], number: int) -> list[Benchmark]:
    """Of one round: in disorder, so that no class of work has a slow moment to itself."""
    first = [b for b in chosen if b.program.startswith(_FIRST)]
    others = [b for b in chosen if not b.program.startswith(_FIRST)]
    random.Random(ORDER_SEED + number).shuffle(others)
    return first + others


def capability_of(device: DeviceSnapshot) -> tuple[int, int] | None:
    """Compute capability; None for a processor."""
    text = device.details.get("capability")
    if device.kind == CPU or not isinstance(text, str):
        return None
    major, minor = text.split(".")
    return int(major), int(minor)
