"""Replays a recorded history and says where the rules and the record part."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from bsprof.errors import UsageError
from bsprof.predict.allocator.blocks import Block
from bsprof.predict.allocator.changes import Change, change_of, changes_text, entry_text, grouped
from bsprof.predict.allocator.following import GRANTS, RELEASES, FollowingAllocator, RecordedDriver
from bsprof.predict.allocator.recording import Entry
from bsprof.predict.allocator.refused import DeviceOutOfMemory
from bsprof.predict.allocator.rules import AllocatorRules
from bsprof.predict.allocator.snapshot import RecordedBlock, Snapshot

DEFAULT_POOL = (0, 0)

READINGS = ("late ones in the flush", "all in the flush", "all before the search")
"""What frees that are completed just before a request may mean, likeliest first after a flush.

A request first frees what other streams are done with, and its flush waits for all of the rest;
a record does not tell where between them the search was, nor of a flush that releases nothing.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first place where record and rules part; the replay stops there.

    Attributes:
        entry: Its number in the history; the history's length where only the final state
            differs.
        recorded: What the record has there.
        replayed: What the rules give.
    """

    entry: int
    recorded: str
    replayed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedReplay:
    """How far the rules follow a record.

    Attributes:
        entries: Of the history.
        segments: Segments and mappings that came and went as recorded.
        allocations: Requests answered with the recorded address.
        ooms: Requests refused as recorded.
        peak_allocated_bytes, peak_reserved_bytes: Of the replay.
        difference: None where it follows to the end.
        notes: What could not be compared.
    """

    entries: int
    segments: int
    allocations: int
    ooms: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    difference: Difference | None
    notes: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether every segment and every address came out as recorded."""
        return self.difference is None


def replay_snapshot(
    snapshot: Snapshot,
    rules: AllocatorRules,
    *,
    device: int = 0,
    device_bytes: int | None = None,
) -> RecordedReplay:
    """Replays the requests and frees of a history; segments must come out as recorded.

    The driver grants and refuses as it did in the record. Which block serves a request, when a
    segment is asked for and how large it is, and what a flush releases are the rules' own.

    Args:
        snapshot: With its history from before the first allocation.
        rules: Under which it was recorded.
        device: Index of the device.
        device_bytes: Its memory; a memory fraction and the addresses of expandable segments
            follow from it. None where neither is used.

    Raises:
        UsageError: The history does not begin with an empty allocator (recording began late, or
            the ring of entries was too short), `device_bytes` is missing, or there is no such
            device.
    """
    if device_bytes is None and (rules.expandable_segments or rules.memory_fraction is not None):
        raise UsageError(
            "cannot replay a history under these rules without the memory of the device",
            found="expandable segments or a memory fraction, which depend on it",
            next_step="tell it in bytes",
        )
    if device >= len(snapshot.histories):
        raise UsageError(
            f"cannot replay the history of device {device}",
            found=f"a snapshot of {len(snapshot.histories)} device(s)",
        )
    history = snapshot.histories[device]
    readings: dict[int, int] = {}
    follower = _Follower(rules, device_bytes, readings)
    difference = follower.follow(history)
    first = difference
    while difference is not None and follower.ambiguous == difference.entry:
        reading = readings.get(difference.entry, 0) + 1
        if reading == len(READINGS):
            difference = first
            break
        if reading == 1:
            first = difference
        readings[difference.entry] = reading
        follower = _Follower(rules, device_bytes, readings)
        difference = follower.follow(history)
    notes: list[str] = []
    if follower.skipped:
        notes.append(f"{follower.skipped} entries of other memory pools (CUDA graphs) left out")
    if difference is None and not follower.skipped:
        difference = follower.final_difference(snapshot.blocks[device], len(history))
    return RecordedReplay(
        entries=len(history),
        segments=follower.segments,
        allocations=follower.allocations,
        ooms=follower.allocator.ooms,
        peak_allocated_bytes=follower.allocator.peak_allocated_bytes,
        peak_reserved_bytes=follower.allocator.peak_reserved_bytes,
        difference=difference,
        notes=tuple(notes),
    )


class _Parted(Exception):
    def __init__(self, recorded: str, replayed: str) -> None:
        super().__init__(recorded, replayed)
        self.recorded = recorded
        self.replayed = replayed


class _Follower:
    """Goes along a history, one entry at a time."""

    def __init__(
        self, rules: AllocatorRules, device_bytes: int | None, readings: Mapping[int, int]
    ) -> None:
        self.readings = readings
        self.ambiguous = -1
        self.driver = RecordedDriver()
        self.told: list[Change] = []
        self.allocator = FollowingAllocator(
            rules, device_bytes=device_bytes, driver=self.driver, watcher=self._hear
        )
        self.held: dict[int, Block] = {}
        self.waiting: dict[int, Block] = {}
        self.pending: list[Entry] = []
        self.completed: list[tuple[Block, bool]] = []
        self.asked = (0, 0)
        self.segments = 0
        self.allocations = 0
        self.skipped = 0

    def follow(self, history: Sequence[Entry]) -> Difference | None:
        """The first difference; None at the end."""
        previous: Entry | None = None
        number = 0
        try:
            for number, entry in enumerate(history):
                if entry.pool != DEFAULT_POOL:
                    self.skipped += 1
                    continue
                self._step(number, entry, previous)
                previous = entry
            number = len(history)
            self._empty_cache()
            self._complete()
        except _Parted as parted:
            return Difference(entry=number, recorded=parted.recorded, replayed=parted.replayed)
        return None

    def final_difference(
        self, recorded: Sequence[RecordedBlock], entries: int
    ) -> Difference | None:
        """The first block of the final state that is not as recorded."""
        replayed = [
            RecordedBlock(address=block.address, size=block.size, state=block.state)
            for block in self.allocator.blocks()
            if block.mapped
        ]
        for theirs, ours in zip_longest(recorded, replayed):
            if theirs != ours:
                return Difference(entry=entries, recorded=str(theirs), replayed=str(ours))
        return None

    def _hear(self, action: str, address: int, size: int, stream: int) -> None:
        self.told.append((action, address, size, stream))
        if action in RELEASES:
            self.driver.released()
        self._place_next()

    def _place_next(self) -> None:
        size, on = self.asked
        self.allocator.place_unmapped(size, on, self.driver.following)

    def _step(self, number: int, entry: Entry, previous: Entry | None) -> None:
        if entry.action in GRANTS or entry.action in RELEASES:
            self.pending.append(entry)
        elif entry.action == "free_completed":
            block = self.waiting.pop(entry.address, None)
            if block is None:
                raise _incomplete(entry)
            at_once = previous is not None and (
                (previous.action, previous.address) == ("free_requested", entry.address)
            )
            self.completed.append((block, at_once))
        elif entry.action in ("alloc", "oom"):
            self._request(number, entry)
        else:
            self._empty_cache()
            self._complete()
            if entry.action == "free_requested":
                block = self.held.pop(entry.address, None)
                if block is None:
                    raise _incomplete(entry)
                self.waiting[entry.address] = block
                self.allocator.free_later(block)

    def _request(self, number: int, entry: Entry) -> None:
        """One request, with the segments that came and went for it."""
        actions = {change.action for change in self.pending}
        flushed = entry.action == "oom" or not actions.isdisjoint(RELEASES)
        self._read_completed(number, flushed=flushed)
        if flushed and self.allocator.finds(entry.size, entry.stream):
            # A request that finds a block flushes nothing: the program did, just before.
            self._empty_cache()
        expected, self.pending = self.pending, []
        self.driver.expected = deque(expected)
        self.asked = (entry.size, entry.stream)
        self.allocator.forget_unmapped()
        self._place_next()
        try:
            block = self.allocator.allocate(entry.size, entry.stream)
        except DeviceOutOfMemory:
            self._compare(expected)
            if entry.action == "alloc":
                raise self._unlike(entry, "no free block and no segment for it") from None
            self._complete()
            return
        self._compare(expected)
        self._complete()
        if entry.action == "oom":
            raise _Parted(entry_text(entry), f"block at {block.address:#x}")
        if block.address != entry.address:
            raise self._unlike(entry, f"block at {block.address:#x}")
        self.held[block.address] = block
        self.allocations += 1

    def _complete(self) -> None:
        """Frees what other streams are done with; a flush may have done so before."""
        for block, _ in self.completed:
            self.allocator.complete(block)
        self.completed = []

    def _read_completed(self, number: int, *, flushed: bool) -> None:
        """Frees what was free before the search; the flush of the request does the rest."""
        if self.completed:
            self.ambiguous = number
        readings = READINGS if flushed else tuple(reversed(READINGS))
        reading = readings[self.readings.get(number, 0)]
        for block, at_once in self.completed:
            if reading == "all before the search" or (at_once and reading != "all in the flush"):
                self.allocator.complete(block)

    def _empty_cache(self) -> None:
        """What releases are pending before anything is granted: all that can be released is."""
        releases: list[Entry] = []
        while self.pending and self.pending[0].action in RELEASES:
            releases.append(self.pending.pop(0))
        if releases:
            self.allocator.empty_cache()
            self._compare(releases)

    def _compare(self, expected: Sequence[Entry]) -> None:
        """Whether segments came and went as expected; the order of releases in a row is free."""
        told, self.told = self.told, []
        recorded = [change_of(entry) for entry in expected]
        for ours, theirs in zip_longest(grouped(told), grouped(recorded), fillvalue=()):
            if ours != theirs:
                only_theirs = [change for change in theirs if change not in ours]
                only_ours = [change for change in ours if change not in theirs]
                raise _Parted(changes_text(only_theirs), changes_text(only_ours))
        self.segments += len(told)

    def _unlike(self, entry: Entry, replayed: str) -> Exception:
        """A difference, or a block of a segment that the history does not show."""
        known = self.allocator.is_known(entry.address)
        return _Parted(entry_text(entry), replayed) if known else _incomplete(entry)


def _incomplete(entry: Entry) -> UsageError:
    return UsageError(
        "cannot replay this history: it does not begin with an empty allocator",
        found=f"{entry_text(entry)}, of which the history does not show the beginning",
        next_step="record from before the first allocation, with max_entries high enough: "
        "torch.cuda.memory._record_memory_history(max_entries=10_000_000)",
    )
