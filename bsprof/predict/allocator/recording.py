"""An allocator that keeps the history of what it did, as torch's own can."""

from __future__ import annotations

from dataclasses import dataclass

from bsprof.predict.allocator.blocks import Block
from bsprof.predict.allocator.caching import CachingAllocator
from bsprof.predict.allocator.outcome import Replay
from bsprof.predict.allocator.refused import DeviceOutOfMemory
from bsprof.predict.allocator.replay import run
from bsprof.predict.allocator.rules import AllocatorRules
from bsprof.predict.allocator.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing an allocator did.

    Attributes:
        action: `alloc`, `free_requested`, `free_completed`, `segment_alloc`, `segment_free`,
            `segment_map`, `segment_unmap`, `oom` or `snapshot`; others may follow.
        address: Where; of `oom`, what the device had left.
        size: Bytes; of `alloc` and `free_*` as requested, of `oom` rounded.
        stream: CUDA stream.
        pool: Memory pool; (0, 0) is the one that serves everything but CUDA graphs.
        label: Who asked, where it is known.
    """

    action: str
    address: int
    size: int
    stream: int
    pool: tuple[int, int] = (0, 0)
    label: str = ""


class RecordingAllocator(CachingAllocator):
    """As `CachingAllocator`; slower.

    Attributes:
        history: Everything it did, in order.
        label: Who asks; set it before a call.
        labels: Who asked for the block that lies at an address.
    """

    def __init__(self, rules: AllocatorRules, capacity_bytes: int | None = None) -> None:
        super().__init__(rules, capacity_bytes, watcher=self._note)
        self.history: list[Entry] = []
        self.labels: dict[int, str] = {}
        self.label = ""

    def allocate(self, requested_bytes: int, stream: int = 0) -> Block:
        """As `CachingAllocator.allocate`."""
        try:
            block = super().allocate(requested_bytes, stream)
        except DeviceOutOfMemory as error:
            size = self.rules.block_bytes(requested_bytes)
            self._note("oom", error.free_bytes or 0, size, stream)
            raise
        if block.size:
            self.labels[block.address] = self.label
            self._note("alloc", block.address, requested_bytes, stream)
        return block

    def free(self, block: Block) -> None:
        """As `CachingAllocator.free`."""
        if block.size:
            self._note_free("free_requested", block)
            self._note_free("free_completed", block)
        super().free(block)

    def free_later(self, block: Block) -> None:
        """As `CachingAllocator.free_later`."""
        self._note_free("free_requested", block)
        super().free_later(block)

    def complete(self, block: Block) -> None:
        """As `CachingAllocator.complete`."""
        if block.waiting:
            self._note_free("free_completed", block)
        super().complete(block)

    def _note_free(self, action: str, block: Block) -> None:
        self.label = self.labels.get(block.address, "")
        self._note(action, block.address, block.requested, block.pool.stream)

    def _note(self, action: str, address: int, size: int, stream: int) -> None:
        self.history.append(
            Entry(action=action, address=address, size=size, stream=stream, label=self.label)
        )


class _Labelling(RecordingAllocator):
    """Labels each request of a schedule with its owner, in order."""

    def __init__(
        self, rules: AllocatorRules, capacity_bytes: int | None, schedule: Schedule
    ) -> None:
        super().__init__(rules, capacity_bytes)
        self._owners = (schedule.owner(code - 1) for code in schedule.operations if code > 0)

    def allocate(self, requested_bytes: int, stream: int = 0) -> Block:
        self.label = next(self._owners)
        return super().allocate(requested_bytes, stream)


def record(
    schedule: Schedule, rules: AllocatorRules, capacity_bytes: int | None
) -> tuple[Replay, RecordingAllocator]:
    """A replay, and the allocator with its history, each request labelled with its module."""
    allocator = _Labelling(rules, capacity_bytes, schedule)
    return run(schedule, allocator), allocator
