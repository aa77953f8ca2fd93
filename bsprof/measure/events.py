"""What a sweep tells while it runs; the command line turns it into lines or a bar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bsprof.records import Point

EventKind = Literal["start", "phase", "probe", "point", "race", "confirm", "loader", "note", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEvent:
    """One thing that happened.

    Attributes:
        kind: What; `phase` comes often and is for a live display only.
        text: One line for people.
        point: The point that has just finished, for `point`.
        done: Points finished so far.
    """

    kind: EventKind
    text: str
    point: Point | None = None
    done: int = 0


Listener = Callable[[SweepEvent], None]
