"""Whose the memory is: at the peak, and over the update that has it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from bsprof.predict.allocator.outcome import PeakOwner, Timeline, first_steady
from bsprof.predict.allocator.schedule import Part, Schedule
from bsprof.records import Category

TIMELINE_POINTS = 400
"""Heuristic: more than a plot has pixels for steps, few enough to store with a profile."""


def find_peak(schedule: Schedule, deltas: Sequence[int]) -> PeakOwner:
    """The first place where allocated bytes are highest in the steady updates, and their owners.

    Args:
        schedule: What was asked.
        deltas: Bytes of blocks allocated (or freed, negative) by each operation done.
    """
    parts = _reached(schedule, len(deltas))
    first = first_steady(tuple(part.update for part in parts))
    begin = next(part.begin for part in parts if part.update >= first)
    levels = list(accumulate(deltas, initial=0))
    # Level i is what is allocated after i operations; what the updates begin with counts too.
    done = levels.index(max(levels[begin:]), begin)
    held = _held(schedule, deltas, done)
    by_category: dict[Category, int] = {}
    by_owner: dict[str, int] = {}
    for storage, size in held.items():
        category = schedule.category(storage)
        by_category[category] = by_category.get(category, 0) + size
        owner = schedule.owner(storage)
        by_owner[owner] = by_owner.get(owner, 0) + size
    position = schedule.position(done)
    part = _part_at(parts, done)
    code = schedule.operations[done - 1] if done else 0
    return PeakOwner(
        position=position,
        mark=part.mark,
        operator=_operator_before(schedule, position),
        module=schedule.owner(abs(code) - 1) if code else "",
        allocated_bytes=levels[done],
        by_category=dict(sorted(by_category.items())),
        by_module=tuple(sorted(by_owner.items(), key=lambda item: (-item[1], item[0]))),
    )


def draw_timeline(
    schedule: Schedule,
    deltas: Sequence[int],
    reserved: Sequence[tuple[int, int]],
    peak: PeakOwner,
) -> Timeline:
    """Allocated bytes by category through the update with the peak.

    Of each stretch of operations the lowest and the highest moment stay, so no extreme is lost.

    Args:
        schedule: What was asked.
        deltas: As for `find_peak`.
        reserved: Operations at which reserved bytes changed, and the bytes from then on.
        peak: Of this replay.
    """
    update = peak.mark.update if peak.mark is not None else -1
    parts = [part for part in _reached(schedule, len(deltas)) if part.update == update]
    begin, end = parts[0].begin, min(parts[-1].end, len(deltas))
    levels = list(accumulate(deltas, initial=0))
    kept = _extremes(levels, begin, end)
    categories = tuple(Category)
    series: dict[Category, list[int]] = {category: [] for category in categories}
    now = dict.fromkeys(categories, 0)
    positions: list[int] = []
    last = len(schedule.stream.sizes)
    position = 0
    wanted = set(kept)
    for done in range(end + 1):
        if done:
            code = schedule.operations[done - 1]
            now[schedule.category(abs(code) - 1)] += deltas[done - 1]
            position += -last <= code <= last
        if done in wanted:
            positions.append(position)
            for category in categories:
                series[category].append(now[category])
    changes = [operation for operation, _ in reserved]
    return Timeline(
        update=update,
        positions=tuple(positions),
        by_category={category: tuple(values) for category, values in series.items() if any(values)},
        reserved_bytes=tuple(
            reserved[place - 1][1] if (place := bisect_right(changes, done - 1)) else 0
            for done in kept
        ),
        marks=tuple(part.mark for part in parts if part.mark is not None),
    )


def _extremes(levels: Sequence[int], begin: int, end: int) -> list[int]:
    """Indices from `begin` to `end` to keep: ends, and both extremes of each stretch."""
    stretches = TIMELINE_POINTS // 2 - 1
    width = max(1, -(-(end + 1 - begin) // stretches))
    kept = {begin, end}
    for start in range(begin, end + 1, width):
        stretch = range(start, min(start + width, end + 1))
        kept.add(min(stretch, key=levels.__getitem__))
        kept.add(max(stretch, key=levels.__getitem__))
    return sorted(kept)


def _reached(schedule: Schedule, operations: int) -> list[Part]:
    """Parts that were begun when so many operations were done."""
    parts = [part for part in schedule.parts if part.begin <= operations]
    return parts or [schedule.parts[0]]


def _held(schedule: Schedule, deltas: Sequence[int], done: int) -> dict[int, int]:
    """Bytes of the block of every storage that is held after so many operations."""
    sizes = dict(zip(schedule.operations[:done], deltas, strict=False))
    return {code - 1: size for code, size in sizes.items() if code > 0 and -code not in sizes}


def _part_at(parts: Sequence[Part], done: int) -> Part:
    """The part whose operation came last; one that begins just then holds what is there."""
    for part in parts:
        if part.begin < done <= part.end:
            return part
    return next((part for part in parts if part.begin >= done), parts[-1])


def _operator_before(schedule: Schedule, position: int) -> int | None:
    operators = schedule.stream.operators
    place = bisect_right(operators, position, key=lambda operator: operator.position)
    return place - 1 if place else None
