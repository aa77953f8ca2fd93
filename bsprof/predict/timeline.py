"""The timeline of the update with the peak, from a replay's to the one that a profile keeps."""

from __future__ import annotations

from bisect import bisect_left

from bsprof.predict.allocator import Replay
from bsprof.predict.stream import Mark, Stream
from bsprof.records import Stage, Timeline


def timeline_of(replay: Replay, stream: Stream) -> Timeline | None:
    """What a profile keeps of a replay's timeline; None where it has none.

    Args:
        replay: With its timeline.
        stream: What was replayed.
    """
    drawn = replay.timeline
    if drawn is None or not drawn.positions:
        return None
    begin = drawn.positions[0]
    levels = [sum(now) for now in zip(*drawn.by_category.values(), strict=True)]
    stages: list[Stage] = []
    for mark in drawn.marks:
        _add(stages, drawn.positions, mark.position, mark, backward=False)
        turn = _backward_begins(stream, mark)
        if turn is not None:
            _add(stages, drawn.positions, turn, mark, backward=True)
    return Timeline(
        positions=tuple(position - begin for position in drawn.positions),
        bytes_by_category=drawn.by_category,
        reserved_bytes=drawn.reserved_bytes,
        stages=tuple(stages),
        peak=levels.index(max(levels)) if levels else 0,
    )


def _add(
    stages: list[Stage], positions: tuple[int, ...], begin: int, mark: Mark, *, backward: bool
) -> None:
    sample = min(bisect_left(positions, begin), len(positions) - 1)
    if not stages:
        sample = 0
    stages.append(
        Stage(sample=sample, phase=mark.phase, micro_step=mark.micro_step, backward=backward)
    )


def _backward_begins(stream: Stream, mark: Mark) -> int | None:
    """Position at which the backward pass of a micro-step begins; None where it has none."""
    if mark.micro_step < 0:
        return None
    before = mark.position
    ends = [other.position for other in stream.marks if other.position > mark.position]
    end = min(ends, default=len(stream.events))
    for operator in stream.operators:
        if mark.position <= operator.position <= end:
            if operator.backward:
                return before
            before = operator.position
    return None
