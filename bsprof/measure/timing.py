"""Truthful times of a micro-step and an optimizer step (worker side).

A sample is one block: queued micro-steps between two synchronisations. Warm-up lasts until two
consecutive blocks agree; sampling until the median's 90 % interval is as narrow as asked, or the
seconds for this point are spent. The optimizer step is timed apart, at the end of each update.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bsprof.fit.samples import is_precise_enough
from bsprof.measure.devices.protocol import Device
from bsprof.measure.pace import paced_samples
from bsprof.measure.pacer import Pacer
from bsprof.records import Timing
from bsprof.workloads.training import Training

MICRO_STEPS_PER_UPDATE = 2  # an accumulation window of two shows the cost of adding gradients
MIN_SAMPLES = 5  # the fewest whose order bounds the median without a distribution
MAX_SAMPLES = 200
WARMUP_AGREEMENT = 0.10  # heuristic: two blocks this close are past compilation and cold caches
MAX_WARMUP_BLOCKS = 6
SHORTEST_BLOCK_S = 0.002  # far above the clock's and a synchronisation's own cost


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Seconds per micro-step of one block, and of the pacer beside it."""

    enqueue_s: float
    micro_s: float
    pace_s: float


@dataclass(slots=True)
class StepClock:
    """Times micro-steps of one batch in blocks, with the optimizer step after each update.

    Attributes:
        on_step: Called before each micro-step (the worker's heartbeat).
        pacer: Times the machine beside each block; None where its speed does not drift.
    """

    training: Training
    device: Device
    batch: Any
    on_step: Callable[[], None]
    pacer: Pacer | None = None
    micro_s: list[float] = field(default_factory=list)
    pace_s: list[float] = field(default_factory=list)
    enqueue_s: list[float] = field(default_factory=list)
    optimizer_s: list[float] = field(default_factory=list)
    block_steps: int = 1
    warmup_steps: int = 0
    micro_steps_run: int = 0
    _last_block_s: float = 0.0

    def _timed_block(self) -> _Block:
        before = self._pace()
        self.device.synchronize()
        start = time.perf_counter()
        for _ in range(self.block_steps):
            self.on_step()
            self.training.micro_step(self.batch, 1.0)
        queued = time.perf_counter()
        self.device.synchronize()
        end = time.perf_counter()
        self._last_block_s = end - start
        after = self._pace()
        self.micro_steps_run += self.block_steps
        return _Block(
            enqueue_s=(queued - start) / self.block_steps,
            micro_s=(end - start) / self.block_steps,
            pace_s=(before + after) / 2,
        )

    def _pace(self) -> float:
        return self.pacer.reading(self._last_block_s) if self.pacer else 0.0

    def _record(self, block: _Block) -> None:
        self.micro_s.append(block.micro_s)
        self.enqueue_s.append(block.enqueue_s)
        if self.pacer:
            self.pace_s.append(block.pace_s)

    def update(self) -> None:
        """One whole update: its micro-steps and its optimizer step become samples."""
        for _ in range(MICRO_STEPS_PER_UPDATE):
            self._record(self._timed_block())
        self._close_window()

    def warm_up(self, previous: float | None = None) -> None:
        """Blocks that are thrown away until two in a row agree; also sets the block's length.

        The second of the two is the first sample: it is as warm as any that follows.

        Args:
            previous: Seconds of a micro-step that already ran at this size, if one did.
        """
        for _ in range(MAX_WARMUP_BLOCKS):
            block = self._timed_block()
            seconds = block.micro_s
            if seconds * self.block_steps < SHORTEST_BLOCK_S:
                self.warmup_steps += self.block_steps
                self.block_steps = min(64, max(2, round(SHORTEST_BLOCK_S / max(seconds, 1e-6))))
            elif previous is not None and abs(seconds - previous) <= WARMUP_AGREEMENT * previous:
                self._record(block)
                break
            else:
                self.warmup_steps += self.block_steps
            previous = seconds
        self._close_window()

    def settle(self) -> None:
        """One block that is thrown away, of a size that was warm before."""
        self._timed_block()
        self._close_window()

    def sample(self, *, relative_error: float, seconds: float) -> None:
        """Updates until the median's interval is narrow enough or the seconds are spent."""
        start = time.perf_counter()
        while len(self.micro_s) < MAX_SAMPLES:
            self.update()
            if len(self.micro_s) < MIN_SAMPLES:
                continue
            spent = time.perf_counter() - start >= seconds
            if spent or is_precise_enough(self.paced(), relative_error=relative_error):
                break

    def paced(self) -> list[float]:
        """The samples with the machine's drift taken out, at the usual pace of this size."""
        return paced_samples(self.micro_s, self.pace_s)

    def _close_window(self) -> None:
        """The optimizer step, timed apart, and no gradients left behind."""
        if self.training.optimizer is None:
            return
        self.device.synchronize()
        start = time.perf_counter()
        stepped = self.training.optimizer_step()
        self.device.synchronize()
        if stepped:  # a step that the gradient scaler skipped says nothing about its cost
            self.optimizer_s.append(time.perf_counter() - start)
        self.training.zero_grad()

    def timing(self) -> Timing:
        """The raw samples so far."""
        return Timing(
            micro_step_samples_s=tuple(self.micro_s),
            optimizer_step_samples_s=tuple(self.optimizer_s),
            enqueue_samples_s=tuple(self.enqueue_s),
            pace_samples_s=tuple(self.pace_s),
            block_steps=self.block_steps,
            warmup_steps=self.warmup_steps,
        )
