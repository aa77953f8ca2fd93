"""What parent and worker say to each other: one JSON object per line, on pipes of their own.

The wire carries a version from the first day, and rank fields. Requests go down (`build`, `probe`,
`measure`, `count`, `race`, `load`; to a worker that traces: `trace`); replies come up (`hello`,
`beat`, `reply`, `error`). A `beat` names the phase that the worker has just entered: its limit
starts again.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

WIRE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLimits:
    """Seconds that one phase may last without a further beat; a worker beats per micro-step.

    Heuristic: far above what a healthy phase takes, so that only a hang reaches them.
    """

    start_s: float = 180.0
    build_s: float = 600.0
    probe_s: float = 120.0
    compile_s: float = 1800.0
    step_s: float = 600.0
    clean_s: float = 120.0
    load_s: float = 120.0
    trace_s: float = 600.0

    def of(self, phase: str) -> float:
        """The limit of a phase, in seconds."""
        return float(getattr(self, f"{phase}_s"))


def encode(message: dict[str, Any]) -> bytes:
    """One message as one line of JSON, with the version in it."""
    return json.dumps({"v": WIRE_VERSION, **message}, allow_nan=True).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The message of one line.

    Raises:
        ValueError: not a message of this version.
    """
    message = json.loads(line)
    if not isinstance(message, dict) or message.get("v") != WIRE_VERSION:
        raise ValueError(f"not a message of wire version {WIRE_VERSION}: {line[:80]!r}")
    return message


def write_all(descriptor: int, data: bytes) -> None:
    """All bytes to a descriptor, however many writes that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class LineReader:
    """Whole lines from a non-blocking descriptor; keeps the unfinished rest."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest: list[bytes] = []
        self.at_end = False

    def lines(self) -> list[bytes]:
        """Every whole line that can be read now, without waiting."""
        whole: list[bytes] = []
        while True:
            try:
                chunk = os.read(self._descriptor, 1 << 20)
            except BlockingIOError:
                break
            if not chunk:
                self.at_end = True
                break
            # Pieces are joined once a line is whole: a traced stream comes in thousands of them.
            first, *others = chunk.split(b"\n")
            self._rest.append(first)
            for piece in others:
                whole.append(b"".join(self._rest))
                self._rest = [piece]
        return whole
