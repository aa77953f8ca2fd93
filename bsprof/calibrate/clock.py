"""Times a call: by the wall clock on a processor, by events on a GPU. Worker side.

On a GPU the host would be slower than small kernels: the device is kept busy with something else
until all calls are queued, so that between two events there is nothing but their kernels.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from bsprof.calibrate.programs.program import Call
from bsprof.measure.devices.protocol import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Lap:
    """Some calls in a row, in seconds a call.

    Attributes:
        device_s: What the device took.
        host_s: Until the last was queued; on a processor the same.
    """

    device_s: float
    host_s: float


class Clock(Protocol):
    """Times calls on one device."""

    @property
    def shortest_s(self) -> float:
        """A lap should last so long: far above what the clock itself costs."""

    @property
    def most_calls(self) -> int:
        """Calls of a lap at most."""

    def lap(self, call: Call, calls: int) -> Lap:
        """Run a call so many times."""


class WallClock:
    """For a processor: operators return when they are done."""

    shortest_s = 0.004
    most_calls = 2000

    def lap(self, call: Call, calls: int) -> Lap:
        """See `Clock`."""
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        seconds = (time.perf_counter() - begin) / calls
        return Lap(device_s=seconds, host_s=seconds)


FASTEST_HZ = 3e9
"""No GPU's clock is faster: the sleep, counted in its cycles, is at least as long as meant."""


class EventClock:
    """For CUDA.

    Args:
        device: Waited for before and after each lap.
        cuda: `torch.cuda`, or a stand-in.
    """

    shortest_s = 0.002
    most_calls = 200  # the driver queues about a thousand kernels, and a step makes several

    def __init__(self, device: Device, cuda: Any = torch.cuda) -> None:
        self._device = device
        self._cuda = cuda
        self._host_s = 1e-3  # of the last lap; at first a guess

    def lap(self, call: Call, calls: int) -> Lap:
        """See `Clock`."""
        begin, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        self._device.synchronize()
        self._cuda._sleep(int(FASTEST_HZ * min(0.05, 1.5 * self._host_s * calls + 1e-4)))
        begin.record()
        started = time.perf_counter()
        for _ in range(calls):
            call()
        queued = time.perf_counter()
        end.record()
        self._device.synchronize()
        self._host_s = (queued - started) / calls
        return Lap(device_s=begin.elapsed_time(end) / 1e3 / calls, host_s=self._host_s)


def clock_of(device: Device) -> Clock:
    """The clock of an open device."""
    return EventClock(device) if device.kind == "cuda" else WallClock()
