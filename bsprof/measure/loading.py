"""Measures the user's data loader after a sweep's sizes, setting by setting, in its own worker.

The parent's side. The worker is fresh, so that the loader's own processes end with its group, and
opens no device. What ends the loader ends its measurement, not the sweep: the settings until then
are kept, and a note says what happened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bsprof.fit.loader import by_workers, supply
from bsprof.measure.choose import best_size, timed
from bsprof.measure.crew import Trouble, answer_of
from bsprof.measure.events import EventKind
from bsprof.measure.ledger import Ledger
from bsprof.measure.raw import LoaderTiming
from bsprof.measure.supervisor import Worker
from bsprof.measure.wire import PhaseLimits
from bsprof.records import LoaderPoint, Note, Point
from bsprof.records.codec import from_json, to_json
from bsprof.units import format_count
from bsprof.workloads.loaders import LoaderSetting

SECONDS = 2.0
"""Seconds of timed batches at one setting."""
MOST_SECONDS = 60.0
"""No further setting begins after this time (heuristic: with starting and warming up, some
fifteen settings)."""
AMPLE = 1.5
"""More workers are not tried once some give this many times what the hungriest size takes."""
GAIN = 1.05
"""More workers are not tried once doubling them gains less than this."""
OTHER_SIZE = 4
"""How many times smaller (else larger) the other batch size is, about: far enough to show what
putting a batch together costs, near enough to be of use."""


@dataclass(slots=True)
class LoaderReport:
    """What was measured of a loader, and what there is to say about it."""

    points: list[LoaderPoint] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def note(self, code: str, message: str, hint: str = "") -> None:
        """A remark, once per code."""
        if not any(n.code == code for n in self.notes):
            self.notes.append(Note(code=code, message=message, hint=hint))


def measure_loader(
    name: str,
    points: Sequence[Point],
    usable_bytes: int,
    *,
    limits: PhaseLimits | None = None,
    on_phase: Callable[[str], None] | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> LoaderReport:
    """How fast a loader is at the size that a sweep would choose, and at one other.

    Args:
        name: `file.py:function`.
        points: The sweep's; none that ran means nothing to measure for.
        usable_bytes: Of the device.
        limits: Seconds that the worker may stay silent; `load_s` is for one batch.
        on_phase: Called with the name of each phase that the worker enters.
        say: Gets one line per setting, and one that holds the loader against the first size.
    """
    sizes = batch_sizes(points, usable_bytes)
    report = LoaderReport()
    if not sizes:
        return report
    with Worker(limits=limits, on_phase=on_phase) as worker:
        _Survey(name, worker, report, _hunger(points), say).run(sizes)
    chosen = next(p for p in points if p.micro_batch_size == sizes[0])
    found = chosen.samples_per_s and supply(report.points, sizes[0], chosen.samples_per_s)
    if found:
        given, taken = (format_count(q.value) for q in (found.best.samples_per_s, found.need))
        say(
            f"loader: {given} samples/s {by_workers(found.best.num_workers)}, where micro-batch "
            f"{sizes[0]} takes {taken}: {found.verdict}"
        )
    return report


def add_loader(
    ledger: Ledger,
    *,
    limits: PhaseLimits | None,
    say: Callable[[EventKind, str], None],
) -> None:
    """Measure the loader that the plan names; nothing where it names none, or one that is known."""
    built, name = ledger.built, ledger.plan.loader
    if built is None or name is None or ledger.loader:
        return
    report = measure_loader(
        name,
        ledger.points(),
        built.device.usable_bytes,
        limits=limits,
        on_phase=lambda phase: say("phase", phase),
        say=lambda text: say("loader", text),
    )
    ledger.loader = tuple(report.points)
    for note in report.notes:
        ledger.note(note.code, note.message, note.hint)


def batch_sizes(points: Sequence[Point], usable_bytes: int) -> tuple[int, ...]:
    """The size to choose without a target, then one other where another one ran."""
    best = best_size(points, usable_bytes)
    if best is None:
        return ()
    others = [p.micro_batch_size for p in timed(points) if p.micro_batch_size != best]
    smaller, larger = [b for b in others if b < best], [b for b in others if b > best]
    if smaller:
        return best, min(smaller, key=lambda b: (abs(b * OTHER_SIZE - best), b))
    return (best, min(larger, key=lambda b: abs(b - best * OTHER_SIZE))) if larger else (best,)


def worker_counts(cores: int, own: int | None) -> tuple[int, ...]:
    """Numbers of workers to try: none, doubling up to the cores, and the loader's own number."""
    counts, doubled = {0, max(1, cores)}, 1
    while doubled < cores:
        counts.add(doubled)
        doubled *= 2
    return tuple(sorted(counts if own is None else counts | {own}))


def _hunger(points: Sequence[Point]) -> float:
    """Samples per second that the fastest size takes between two optimizer steps."""
    return max(p.micro_batch_size / p.micro_step_s.value for p in timed(points) if p.micro_step_s)


class _Survey:
    """One loader's settings, one after the other, until trouble or the end of the time."""

    def __init__(
        self,
        name: str,
        worker: Worker,
        report: LoaderReport,
        hunger: float,
        say: Callable[[str], None],
    ) -> None:
        self._name, self._worker, self._report = name, worker, report
        self._hunger, self._say = hunger, say
        self._end = time.monotonic() + MOST_SECONDS
        self._settable: frozenset[str] = frozenset()
        self._own_workers: int | None = None

    def run(self, sizes: Sequence[int]) -> None:
        for setting in self._settings(sizes):
            if time.monotonic() > self._end:
                self._report.note(
                    "loader-cut-short",
                    f"the loader was measured for {MOST_SECONDS:.0f} s, which was not enough for "
                    f"all settings",
                )
                return
            answer = answer_of(
                self._worker,
                {
                    "type": "load",
                    "loader": self._name,
                    "setting": to_json(setting),
                    "seconds": SECONDS,
                },
            )
            if isinstance(answer, Trouble):
                self._fail(setting, answer)
                return
            self._add(setting, answer)

    def _settings(self, sizes: Sequence[int]) -> Iterator[LoaderSetting]:
        """Settings in the order of their use; reads what the ones before have shown."""
        first = sizes[0]
        yield LoaderSetting(batch_size=first, num_workers=0)
        counts: tuple[int, ...] = (0,)
        if "num_workers" in self._settable:
            for count in worker_counts(usable_cores(), self._own_workers)[1:]:
                if not self._worth_more(count):
                    continue
                yield LoaderSetting(batch_size=first, num_workers=count)
                counts = (*counts, count)
        if "batch_size" in self._settable and len(sizes) > 1:
            for count in counts:
                yield LoaderSetting(batch_size=sizes[1], num_workers=count)
        usual = self._report.points[0].batch_size
        with_workers = [p for p in self._report.points if p.num_workers and p.batch_size == usual]
        if "prefetch_factor" in self._settable and with_workers:
            best = max(with_workers, key=lambda p: p.samples_per_s.value)
            yield LoaderSetting(batch_size=first, num_workers=best.num_workers, prefetch_times=2)

    def _worth_more(self, count: int) -> bool:
        """Whether this number of workers is still to be tried, after the ones before."""
        if count == self._own_workers:
            return True
        tried = [p for p in self._report.points if p.num_workers]
        if any(p.samples_per_s.low >= AMPLE * self._hunger for p in tried):
            return False
        if len(tried) < 2:
            return True
        before = max(p.samples_per_s.value for p in tried[:-1])
        return tried[-1].samples_per_s.high >= GAIN * before

    def _add(self, setting: LoaderSetting, answer: dict[str, Any]) -> None:
        timing = from_json(LoaderTiming, answer["timing"])
        point = LoaderPoint(
            batch_size=timing.batch_size,
            num_workers=answer["num_workers"],
            prefetch_factor=answer["prefetch_factor"],
            samples_per_s=timing.samples_per_s,
            first_batch_s=timing.first_batch_s,
        )
        self._settable = frozenset(answer["settable"])
        if point.num_workers != setting.num_workers:  # it takes the number and goes its own way
            self._settable -= {"num_workers", "prefetch_factor"}
        self._own_workers = answer["own_workers"]
        self._report.points.append(point)
        ahead = f", prefetch {point.prefetch_factor}" if point.prefetch_factor else ""
        self._say(
            f"loader, batches of {point.batch_size}: "
            f"{format_count(point.samples_per_s.value)} samples/s "
            f"{by_workers(point.num_workers)}{ahead}"
        )
        if timing.restarts and point.num_workers:
            self._report.note(
                "loader-short-epoch",
                f"an epoch of the loader is over after {timing.epoch_batches} batches; what it "
                "costs to begin the next is part of its rate",
                "persistent_workers=True keeps the workers from epoch to epoch",
            )

    def _fail(self, setting: LoaderSetting, trouble: Trouble) -> None:
        error = trouble.error
        doing = error.doing if error else f"the loader failed {by_workers(setting.num_workers)}"
        found = error.found.splitlines() if error else [trouble.failure.reason]
        kept = "; the settings before it are kept" if self._report.points else ""
        message = ": ".join([doing, *found[:1]]) + kept
        self._report.note("loader-failed", message, error.next_step if error else "")


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
