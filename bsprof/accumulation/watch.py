"""Watches the updates of a run: gradient norm, variance, noise scale; log, drift, way back."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bsprof.accumulation.drift import Drift, Observed
from bsprof.accumulation.noise import NoiseParts, noise_parts
from bsprof.errors import OutputError, UsageError
from bsprof.records import Note
from bsprof.records.codec import to_json

log = logging.getLogger("bsprof.accumulation")

FEWEST_PIECES = 64
"""Pieces before a noise scale is named: below, its interval is wider than a factor of 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What to watch, and where to tell it.

    The numbers of an update are read when the next one has run, so that the host never waits for
    the device; `Accumulator.flush` reads the last ones.

    Attributes:
        noise_scale: Whether to look at every piece's own gradient: about one pass over the
            gradients more for each piece. Not possible with FSDP2.
        log: File to which one JSON object is appended for each update, by rank 0.
        window: Updates that say what is usual, and over which running means reach.
        on_note: Called with each note, on rank 0; None logs it as a warning.
    """

    noise_scale: bool = False
    log: str | Path | None = None
    window: int = 50
    on_note: Callable[[Note], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """An update whose numbers are still on the device."""

    step: int
    numbers: Tensor
    has_norm: bool
    has_noise: bool
    pieces: int
    stepped: bool


class Watcher:
    """Follows one run.

    Args:
        watch: What was asked for.
        rank: Of this process.
        world_size: Of the run.

    Raises:
        UsageError: a window of fewer than 16 updates.
        OutputError: the log cannot be written.
    """

    def __init__(self, watch: Watch, rank: int, world_size: int) -> None:
        if watch.window < 16:
            raise UsageError(
                f"a window of {watch.window} updates says too little of what is usual",
                next_step="take at least 16",
            )
        self._watch = watch
        self._speaks = rank == 0
        self._world_size = world_size
        self._drift = Drift(watch.window)
        self._means = _RunningMeans(watch.window)
        self._pending: _Pending | None = None
        self._saved: list[int] = []
        self.newest: Observed | None = None
        if watch.log is not None and self._speaks:
            self._append("")  # find out now whether it can be written

    @property
    def last_good_step(self) -> int:
        """The last update before the numbers became strange."""
        return self._drift.last_good_step

    @property
    def rollback_step(self) -> int | None:
        """The newest saved update that is not after the last good one; None without any."""
        good = [step for step in self._saved if step <= self.last_good_step]
        return good[-1] if good else None

    def saved(self, step: int) -> None:
        """A checkpoint of this update exists."""
        self._saved.append(step)

    def see(
        self,
        *,
        step: int,
        loss: Tensor,
        norm: Tensor | None,
        sums: Tensor | None,
        pieces: int,
        stepped: bool,
    ) -> None:
        """After an update; tells what the update before it showed.

        Args:
            loss: This rank's share of the update's loss; the ranks' shares add up to it.
            norm: Of the whole gradient, unscaled, before clipping.
            sums: What `MicroNorms.take` gave.
            pieces: This rank ran.
        """
        kind = torch.float32 if loss.device.type == "mps" else torch.float64
        parts = [loss.detach().to(kind).reshape(1)]
        if sums is not None:
            parts.append(sums.to(loss.device, kind))
        shared = torch.cat(parts)
        if self._world_size > 1:
            dist.all_reduce(shared)
        if norm is not None:
            shared = torch.cat([shared, norm.detach().to(loss.device, kind).reshape(1)])
        self.flush()
        self._pending = _Pending(
            step=step,
            numbers=shared,
            has_norm=norm is not None,
            has_noise=sums is not None,
            pieces=pieces * self._world_size,
            stepped=stepped,
        )

    def flush(self) -> None:
        """Read the numbers of the last update, and tell what they show."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        values = pending.numbers.tolist()
        norm = values.pop() if pending.has_norm else None
        if pending.has_noise and norm is not None and pending.stepped:
            self._means.add(values[1:], norm, pending.pieces)
        parts = self._means.parts
        self.newest = Observed(
            step=pending.step,
            loss=values[0],
            gradient_norm=norm,
            gradient_variance=None if parts is None else parts.variance,
            noise_scale=None if parts is None else parts.noise_scale,
            stepped=pending.stepped,
        )
        notes = [self._with_way_back(note) for note in self._drift.see(self.newest)]
        if self._speaks:
            self._tell(notes)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"saved": list(self._saved), "last_good_step": self.last_good_step}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._saved = [int(step) for step in state["saved"]]
        self._drift.last_good_step = int(state["last_good_step"])

    def _with_way_back(self, note: Note) -> Note:
        if note.code == "noise-scale-drift":
            return note
        back = f"last good update: {self.last_good_step}"
        if self._saved:
            saved = self.rollback_step
            back += "; no checkpoint is that old" if saved is None else f", saved: {saved}"
        return Note(code=note.code, message=note.message, hint=f"{note.hint}; {back}")

    def _tell(self, notes: list[Note]) -> None:
        for note in notes:
            if self._watch.on_note is not None:
                self._watch.on_note(note)
            else:
                log.warning("%s (%s)", note.message, note.hint)
        if self._watch.log is not None:
            line = {**to_json(self.newest), "notes": to_json(notes)}
            self._append(json.dumps(line) + "\n")

    def _append(self, text: str) -> None:
        path = Path(str(self._watch.log))
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise OutputError(
                f"cannot write the log {path}", found=error.strerror or type(error).__name__
            ) from error


class _RunningMeans:
    """Numerator and denominator of the noise scale, averaged apart, then divided."""

    def __init__(self, window: int) -> None:
        self._keep = 1 - 1 / window
        self._variance = self._signal = self._weight = 0.0
        self._pieces = 0

    def add(self, sums: list[float], norm: float, pieces: int) -> None:
        """One update: the sums of `MicroNorms` over all ranks."""
        local, per_piece, per_update = sums
        if per_piece <= per_update * (1 + 1e-9):
            return  # a single piece
        parts = noise_parts(local=local, total=norm**2, per_piece=per_piece, per_update=per_update)
        for name, value in (
            ("_variance", parts.variance),
            ("_signal", parts.signal),
            ("_weight", 1.0),
        ):
            setattr(self, name, self._keep * getattr(self, name) + (1 - self._keep) * value)
        self._pieces += pieces

    @property
    def parts(self) -> NoiseParts | None:
        """The running means; None before there is enough."""
        if self._pieces < FEWEST_PIECES:
            return None
        return NoiseParts(
            variance=self._variance / self._weight, signal=self._signal / self._weight
        )
