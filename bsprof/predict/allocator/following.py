"""An allocator whose driver grants and refuses what a record shows."""

from __future__ import annotations

from collections import deque
from typing import Any

from bsprof.predict.allocator.blocks import Pool
from bsprof.predict.allocator.caching import CachingAllocator
from bsprof.predict.allocator.driver import Driver
from bsprof.predict.allocator.recording import Entry
from bsprof.predict.allocator.rules import SMALL_BYTES, AllocatorRules

GRANTS = ("segment_alloc", "segment_map")
RELEASES = ("segment_free", "segment_unmap")

UNPLACED = 1 << 54
"""Higher than any address of a device."""


class RecordedDriver(Driver):
    """Grants what the record grants next, where it lay; refuses where it releases or ends."""

    __slots__ = ("expected",)

    def __init__(self) -> None:
        super().__init__(None)
        self.expected: deque[Entry] = deque()

    def take(self, size: int) -> bool:
        if not self.expected or self.expected[0].action in RELEASES:
            return False
        if self.expected[0].size != size:
            return False
        self.expected.popleft()
        return super().take(size)

    def allocate(self, size: int) -> int | None:
        address = self.expected[0].address if self.expected else 0
        return address if self.take(size) else None

    def reserve_addresses(self, size: int) -> int:
        """Where the record maps next; else behind all others, until it shows where it lies."""
        if self.following is not None and self.following.action in GRANTS:
            return self.following.address
        return UNPLACED + super().reserve_addresses(size)

    @property
    def following(self) -> Entry | None:
        """The next segment that comes or goes for the request at hand."""
        return self.expected[0] if self.expected else None

    def released(self) -> None:
        """The allocator gave a segment back, as the record has it next."""
        if self.expected and self.expected[0].action in RELEASES:
            self.expected.popleft()


class FollowingAllocator(CachingAllocator):
    """Can be asked beforehand whether a free block serves a request."""

    def __init__(self, rules: AllocatorRules, **options: Any) -> None:
        super().__init__(rules, **options)
        self._searches_plainly = False

    def finds(self, requested_bytes: int, stream: int) -> bool:
        """Whether a request would be served without the driver."""
        size = self.rules.block_bytes(requested_bytes)
        pool = (self._small if size <= SMALL_BYTES else self._large).get(stream)
        if pool is None:
            return False
        searches = self.large_searches
        block = self._search(pool, size)
        self.large_searches = searches
        if block is not None:
            born = block.born
            pool.insert(block)
            block.born = born
        return block is not None

    def forget_unmapped(self) -> None:
        """Drops expandable segments without a page; see `place_unmapped`."""
        for address, block in tuple(self.segments.items()):
            if not block.mapped and not block.is_split:
                del self.segments[address]
                block.pool.unmapped.remove(block)

    def place_unmapped(self, requested_bytes: int, stream: int, following: Entry | None) -> None:
        """Puts an expandable segment without a page where the record maps its first one next.

        A record shows no earlier where such a segment lies.
        """
        if self._expandable is None or following is None or following.action != "segment_map":
            return
        if not self.is_known(following.address):
            is_small = self.rules.block_bytes(requested_bytes) <= SMALL_BYTES
            pools = self._small if is_small else self._large
            pool = pools.setdefault(stream, Pool(is_small=is_small, stream=stream))
            self._expandable.reserve(pool, following.address)

    def is_known(self, address: int) -> bool:
        """Whether an address lies in a block, or where one without memory begins to be mapped.

        How far a segment's addresses go is not known where the device's memory is not.
        """
        return any(
            block.address <= address < block.address + (block.size if block.mapped else 1)
            for block in self.blocks()
        )
