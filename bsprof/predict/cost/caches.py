"""What operators find outside of a processor's last cache, by how long ago it was touched.

A training step touches far more than a cache holds, and in an order that is known: the further back
an operand was last touched, counted in bytes touched since, the less of it is still there. A GPU
needs none of this: its cache is small beside what one operator moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf

from bsprof.accounting.work import Work
from bsprof.predict.cost.multipliers import Multipliers
from bsprof.predict.cost.works import Costs
from bsprof.predict.stream import Operator, Stream

SMALLEST_BYTES = 32 * 2**10
"""What is smaller is not followed: mostly scalars and biases, which cost nothing either way."""
ROOMIER = 2.0
"""Freed memory is handed out again where it is at most so many times as large as is asked for
(heuristic: the C library splits larger blocks, and then any end may be the cold one)."""


def beyond(distance_bytes: float, cache_bytes: float) -> float:
    """Share of an operand that a cache no longer holds after so many bytes were touched.

    A cache that drops the oldest first would lose all at once; real ones, shared and hashed, lose
    in proportion.
    """
    return max(0.0, 1.0 - cache_bytes / distance_bytes) if distance_bytes else 0.0


def footprint_bytes(operators: Iterable[Operator]) -> int:
    """Bytes of the distinct storages that operators touch."""
    sizes: dict[int, int] = {}
    for operator in operators:
        for operand in (*operator.inputs, *operator.outputs):
            sizes[operand.block] = max(sizes.get(operand.block, 0), operand.bytes)
    return sum(sizes.values())


def cold_bytes(stream: Stream, cache_bytes: float) -> Mapping[int, int]:
    """Bytes that each operator of a stream must fetch from memory, by `id` of the operator."""
    memory = _Memory(stream.sizes)
    position = 0
    found: dict[int, int] = {}
    for operator in stream.operators:
        for event in stream.events[position : operator.position]:
            memory.happen(event)
        position = max(position, operator.position)
        cold = 0.0
        touched: dict[int, int] = {}
        for operand in (*operator.inputs, *operator.outputs):
            if operand.block >= 0:
                touched[operand.block] = max(touched.get(operand.block, 0), operand.bytes)
        for block, size in touched.items():
            if size >= SMALLEST_BYTES:
                cold += size * beyond(memory.distance_bytes(block), cache_bytes)
        for block in touched:
            memory.touch(block)
        if cold:
            found[id(operator)] = round(cold)
    return found


class CachedCosts(Costs):
    """Works that say what they find outside of a cache.

    Args:
        multipliers: As for `Costs`.
        stream: That the operators are from.
        cache_bytes: Of the processor's last cache.
    """

    def __init__(self, multipliers: Multipliers, stream: Stream, cache_bytes: float) -> None:
        super().__init__(multipliers, stream.events)
        self._cold = cold_bytes(stream, cache_bytes)

    def of(self, operators: Iterable[Operator]) -> Iterator[tuple[Operator, tuple[Work, ...]]]:
        """See `Costs`; works of one operator share what it fetches by their bytes."""
        for operator, works in super().of(operators):
            cold = self._cold.get(id(operator))
            yield operator, shared(works, cold) if cold else works


def shared(works: tuple[Work, ...], memory_bytes: float) -> tuple[Work, ...]:
    """Works of one operator, with what it fetches from memory split by their bytes."""
    total = sum(work.bytes for work in works)
    if not total:
        return works
    return tuple(
        replace(work, memory_bytes=round(memory_bytes * work.bytes / total)) for work in works
    )


class _Memory:
    """Which storage lies where, and in which order places were last touched.

    A place is memory that the C library hands out; a new storage takes the place of one that was
    freed last and is of its size, and with it what of that is still in the cache.

    Args:
        sizes: Of storages.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self._sizes = sizes
        self._place: dict[int, int] = {}  # from storage to place
        self._room: dict[int, int] = {}  # bytes of each place
        self._order: dict[int, None] = {}  # places, the one touched last at the end
        self._freed: list[int] = []  # places, the one freed last at the end

    def happen(self, event: int) -> None:
        """A storage is allocated (above zero) or freed."""
        block = abs(event) - 1
        size = self._sizes[block]
        if size < SMALLEST_BYTES:
            return
        if event > 0:
            self._place[block] = self._found(size)
        else:
            place = self._place.pop(block, None)
            if place is not None:
                self._freed.append(place)

    def _found(self, size: int) -> int:
        for index in range(len(self._freed) - 1, -1, -1):
            if size <= self._room[self._freed[index]] <= ROOMIER * size:
                return self._freed.pop(index)
        place = len(self._room)
        self._room[place] = size
        return place

    def distance_bytes(self, block: int) -> float:
        """Bytes touched since a storage was, its own included; infinite where it never was."""
        place = self._place.get(block)
        if place is None:
            return 0.0  # too small to be followed
        if place not in self._order:
            return inf
        total = 0
        for other in reversed(self._order):
            total += self._room[other]
            if other == place:
                break
        return float(total)

    def touch(self, block: int) -> None:
        """A storage is the one touched last."""
        place = self._place.get(block)
        if place is not None:
            self._order.pop(place, None)
            self._order[place] = None
