"""What the benchmarks of a device found. Loads no torch."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bsprof.calibrate.benchmark import Benchmark
from bsprof.measure.pace import paced_samples
from bsprof.predict.stream import Operator
from bsprof.records import DeviceSnapshot, Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Laps of one benchmark: entries of one lap belong together.

    Attributes:
        device_s: Seconds a call, of each lap.
        host_s: Likewise, until all were queued.
        pace_s: Seconds of a fixed piece of work beside each lap; empty where clocks do not drift.
        calls: Of a lap.
    """

    device_s: tuple[float, ...]
    host_s: tuple[float, ...]
    pace_s: tuple[float, ...] = ()
    calls: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A benchmark with its operators and times.

    Attributes:
        operators: That one call runs.
        samples: Of each round.
    """

    benchmark: Benchmark
    operators: tuple[Operator, ...]
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A device with all that was timed on it.

    Attributes:
        refused: Benchmarks that it has no kernel for, and why.
        failed: Benchmarks that failed otherwise, and why.
        skipped: Names of benchmarks that there was no time for.
        duration_s: Of everything.
    """

    device: DeviceSnapshot
    environment: Environment
    timed: tuple[Timed, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    duration_s: float = 0.0

    @property
    def usual_pace_s(self) -> float | None:
        """Median of the machine's pace over the whole time; None where it does not drift."""
        paces = [p for timed in self.timed for s in timed.samples for p in s.pace_s]
        return statistics.median(paces) if paces else None

    def seconds(self, timed: Timed) -> float:
        """Device seconds of a call at the usual pace: the median over the laps of all rounds."""
        return statistics.median(_laps(timed.samples, self.usual_pace_s, "device_s"))

    def host_seconds(self, timed: Timed) -> float:
        """The same until it is queued."""
        return statistics.median(_laps(timed.samples, self.usual_pace_s, "host_s"))


def _laps(samples: Sequence[Sample], usual_s: float | None, field_name: str) -> list[float]:
    return [
        lap
        for sample in samples
        for lap in paced_samples(getattr(sample, field_name), sample.pace_s, usual_s)
    ]
