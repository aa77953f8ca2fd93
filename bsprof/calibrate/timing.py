"""Times one program: warm-up until stable, laps of several calls, their medians. Worker side."""

from __future__ import annotations

import time
from collections.abc import Callable

from bsprof.calibrate.clock import Clock, Lap
from bsprof.calibrate.measured import Sample
from bsprof.calibrate.programs.program import Call
from bsprof.measure.pacer import Pacer

WARMUP_AGREEMENT = 0.10
"""Heuristic: two laps so close are past compilation, autotuning and cold caches."""
WARMUP_LAPS = 6
FEWEST_LAPS = 3
MOST_LAPS = 15


def time_call(
    call: Call,
    clock: Clock,
    *,
    seconds: float,
    pacer: Pacer | None = None,
    on_lap: Callable[[], None] = lambda: None,
) -> Sample:
    """Time a call.

    Args:
        call: What is timed; it has run at least once before this returns its first lap.
        clock: Of its device.
        seconds: To spend; the fewest laps are run whatever they take, unless a single call takes
            longer than this, and then that call is the sample.
        pacer: Times the machine beside each lap.
        on_lap: Called before each lap.
    """
    end = time.perf_counter() + seconds
    on_lap()
    calls, last = _warm(call, clock, on_lap, end)
    laps: list[Lap] = []
    paces: list[float] = []
    while len(laps) < MOST_LAPS:
        late = time.perf_counter() > end
        if (late and len(laps) >= FEWEST_LAPS) or (laps and last.device_s > seconds):
            break
        on_lap()
        before = _pace(pacer, last, calls)
        last = clock.lap(call, calls)
        laps.append(last)
        if pacer is not None:
            paces.append((before + _pace(pacer, last, calls)) / 2)
    return Sample(
        device_s=tuple(lap.device_s for lap in laps),
        host_s=tuple(lap.host_s for lap in laps),
        pace_s=tuple(paces),
        calls=calls,
    )


def _warm(call: Call, clock: Clock, on_lap: Callable[[], None], end: float) -> tuple[int, Lap]:
    """Laps that are thrown away until two agree: how many calls make a lap, and the last lap."""
    calls = 1
    last = clock.lap(call, calls)
    for _ in range(WARMUP_LAPS):
        if time.perf_counter() > end:
            break
        on_lap()
        before, last = last, clock.lap(call, calls)
        if last.device_s * calls < clock.shortest_s and calls < clock.most_calls:
            wanted = round(clock.shortest_s / max(last.device_s, 1e-9))
            calls = min(clock.most_calls, max(2, wanted))
        elif abs(last.device_s - before.device_s) <= WARMUP_AGREEMENT * before.device_s:
            break
    return calls, last


def _pace(pacer: Pacer | None, lap: Lap, calls: int) -> float:
    return pacer.reading(lap.device_s * calls) if pacer is not None else 0.0
