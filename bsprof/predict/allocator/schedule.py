"""A stream and its insertions as one run of allocations and frees, cut where marks stand."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from bsprof.predict.stream import Insertion, Mark, Stream
from bsprof.records import Category


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Operations from one mark to the next; `mark` is None before the first."""

    begin: int
    end: int
    mark: Mark | None

    @property
    def update(self) -> int:
        """Of the mark; -1 before the first."""
        return self.mark.update if self.mark is not None else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What the allocator is asked, in order.

    Insertions are further storages behind those of the stream: insertion k is number
    `len(stream.sizes) + k`.

    Attributes:
        stream, insertions: What it was made of.
        operations: `i + 1` where storage i is allocated, `-(i + 1)` where it is freed.
        sizes: Requested bytes of each storage.
        streams: CUDA stream of each storage.
        parts: Cover all operations.
        inserted: Places among the operations of those that belong to insertions.
    """

    stream: Stream
    insertions: tuple[Insertion, ...]
    operations: list[int]
    sizes: list[int]
    streams: list[int]
    parts: tuple[Part, ...]
    inserted: list[int]

    @classmethod
    def of(cls, stream: Stream, insertions: Sequence[Insertion] = ()) -> Schedule:
        """Puts insertions, in any order, among the events of a stream.

        At one position come, in this order: frees of insertions; workspaces that are freed where
        they are made, since the operator before uses them; marks; insertions that stay.

        Raises:
            ValueError: An insertion outside the stream, or freed before it is made.
        """
        storages = len(stream.sizes)
        frees: dict[int, list[int]] = {}
        workspaces: dict[int, list[int]] = {}
        stays: dict[int, list[int]] = {}
        marks: dict[int, list[Mark]] = {}
        for mark in stream.marks:
            marks.setdefault(mark.position, []).append(mark)
        for number, insertion in enumerate(insertions, storages + 1):
            _check(insertion, len(stream.events))
            if insertion.bytes <= 0:
                continue
            if insertion.until == insertion.position:
                workspaces.setdefault(insertion.position, []).extend((number, -number))
                continue
            stays.setdefault(insertion.position, []).append(number)
            if insertion.until is not None:
                frees.setdefault(insertion.until, []).append(-number)
        operations: list[int] = []
        begins: list[tuple[int, Mark | None]] = [(0, None)]
        done = 0
        for position in sorted(frees.keys() | workspaces.keys() | stays.keys() | marks.keys()):
            operations += stream.events[done:position]
            done = position
            operations += frees.get(position, ())
            operations += workspaces.get(position, ())
            begins += [(len(operations), mark) for mark in marks.get(position, ())]
            operations += stays.get(position, ())
        operations += stream.events[done:]
        ends = [begin for begin, _ in begins[1:]] + [len(operations)]
        parts = tuple(
            Part(begin=begin, end=end, mark=mark)
            for (begin, mark), end in zip(begins, ends, strict=True)
            if mark is not None or end > begin or len(begins) == 1
        )
        return cls(
            stream=stream,
            insertions=tuple(insertions),
            operations=operations,
            sizes=[*stream.sizes, *(insertion.bytes for insertion in insertions)],
            streams=[*stream.streams, *(insertion.stream for insertion in insertions)],
            parts=parts,
            inserted=[
                place for place, code in enumerate(operations) if not -storages <= code <= storages
            ]
            if insertions
            else [],
        )

    def position(self, operation: int) -> int:
        """Number of events of the stream among the first `operation` operations."""
        return operation - bisect_left(self.inserted, operation)

    def category(self, storage: int) -> Category:
        """Whose bytes a storage is."""
        of_stream = self.stream.categories
        if storage < len(of_stream):
            return of_stream[storage]
        return self.insertions[storage - len(of_stream)].category

    def owner(self, storage: int) -> str:
        """Name of the module that made a storage, or of the insertion."""
        modules = self.stream.modules
        if storage < len(modules):
            return self.stream.module_names[modules[storage]]
        return self.insertions[storage - len(modules)].name


def _check(insertion: Insertion, events: int) -> None:
    begin, until = insertion.position, insertion.until
    if not 0 <= begin <= (events if until is None else until) <= events:
        raise ValueError(
            f"insertion '{insertion.name}' from {begin} to {until} in a stream of {events} events"
        )
