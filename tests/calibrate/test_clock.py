"""Clocks over a fake of torch.cuda, and the timing of a program over a fake clock."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from bsprof.calibrate import timing
from bsprof.calibrate.clock import FASTEST_HZ, EventClock, Lap, WallClock, clock_of
from bsprof.calibrate.timing import FEWEST_LAPS, time_call


@dataclass
class FakeCuda:
    """A stream: it sleeps, runs kernels of a millisecond, and notes when events pass."""

    log: list[str] = field(default_factory=list)
    now_ms: float = 0.0
    slept_cycles: list[int] = field(default_factory=list)

    def _sleep(self, cycles: int) -> None:
        self.slept_cycles.append(cycles)
        self.log.append("sleep")
        self.now_ms += 1e3 * cycles / FASTEST_HZ

    def kernel(self) -> None:
        self.log.append("kernel")
        self.now_ms += 1.0

    def Event(self, *, enable_timing: bool):  # noqa: N802 - torch's name
        assert enable_timing
        cuda = self

        class Event:
            at_ms = 0.0

            def record(self) -> None:
                cuda.log.append("event")
                self.at_ms = cuda.now_ms

            def elapsed_time(self, other) -> float:
                return other.at_ms - self.at_ms

        return Event()


class FakeDevice:
    kind = "cuda"

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda

    def synchronize(self) -> None:
        self.cuda.log.append("wait")


def test_kernels_are_timed_between_events_with_the_device_kept_busy_before():
    cuda = FakeCuda()
    clock = EventClock(FakeDevice(cuda), cuda)
    lap = clock.lap(cuda.kernel, 3)
    assert cuda.log == ["wait", "sleep", "event", "kernel", "kernel", "kernel", "event", "wait"]
    assert lap.device_s == pytest.approx(1e-3)
    assert 0 < lap.host_s < 1e-3


def test_the_device_sleeps_for_as_long_as_the_host_needs():
    cuda = FakeCuda()
    clock = EventClock(FakeDevice(cuda), cuda)
    clock.lap(cuda.kernel, 1)
    clock._host_s = 2e-4
    clock.lap(cuda.kernel, 50)
    assert cuda.slept_cycles[-1] / FASTEST_HZ > 50 * 2e-4
    clock._host_s = 10.0
    clock.lap(cuda.kernel, 50)
    assert cuda.slept_cycles[-1] / FASTEST_HZ <= 0.05  # a slow start is not waited for


def test_a_processor_is_timed_by_the_wall_clock():
    class Processor:
        kind = "cpu"

    calls = []
    clock = clock_of(Processor())
    assert isinstance(clock, WallClock)
    lap = clock.lap(lambda: calls.append(1), 5)
    assert len(calls) == 5
    assert lap.device_s == lap.host_s > 0


class Script:
    """A clock that shows given seconds a call, the last one for ever; time passes with it."""

    shortest_s = 0.004
    most_calls = 100

    def __init__(self, monkeypatch, seconds: list[float]) -> None:
        self.seconds = seconds
        self.now = 0.0
        self.laps: list[int] = []
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def lap(self, call, calls: int) -> Lap:
        call()
        seconds = self.seconds[min(len(self.laps), len(self.seconds) - 1)]
        self.laps.append(calls)
        self.now += seconds * calls
        return Lap(device_s=seconds, host_s=seconds / 2)


def nothing() -> None:
    """A program."""


def test_short_calls_are_timed_many_at_a_time(monkeypatch):
    clock = Script(monkeypatch, [1e-4])
    sample = time_call(nothing, clock, seconds=0.1)
    assert sample.calls == 40
    assert sample.device_s == (1e-4,) * len(sample.device_s)
    assert sample.host_s[0] == 5e-5
    assert len(sample.device_s) >= FEWEST_LAPS


def test_laps_before_two_agree_are_thrown_away(monkeypatch):
    clock = Script(monkeypatch, [0.5, 0.02, 0.012, 0.010, 0.010])
    sample = time_call(nothing, clock, seconds=2.0)
    assert set(sample.device_s) == {0.010}


def test_the_fewest_laps_are_run_when_time_is_up(monkeypatch):
    clock = Script(monkeypatch, [0.02])
    sample = time_call(nothing, clock, seconds=0.03)
    assert len(sample.device_s) == FEWEST_LAPS


def test_a_call_beyond_all_time_is_itself_the_sample(monkeypatch):
    clock = Script(monkeypatch, [3.0])
    sample = time_call(nothing, clock, seconds=0.1)
    assert sample.device_s == (3.0,)
    assert len(clock.laps) == 2  # one to warm up


def test_every_lap_beats_and_has_its_pace(monkeypatch):
    class Pace:
        def reading(self, block_s: float) -> float:  # noqa: ARG002
            return 0.003

    beats = []
    clock = Script(monkeypatch, [0.01])
    sample = time_call(nothing, clock, seconds=0.05, pacer=Pace(), on_lap=lambda: beats.append(1))
    assert sample.pace_s == (0.003,) * len(sample.device_s)
    assert len(beats) >= len(sample.device_s)
