"""Expandable segments: address space for more than the device has, mapped page by page.

One segment per pool and stream grows (and gets holes when pages are unmapped). Pages are 2 MiB
in the small pool and as large as a large segment in the other (`ExpandableSegment` in
`CUDACachingAllocator.cpp`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from bsprof.predict.allocator.blocks import Block, Pool
from bsprof.predict.allocator.rules import SMALL_SEGMENT_BYTES

if TYPE_CHECKING:
    from bsprof.predict.allocator.caching import CachingAllocator

UNLIMITED_DEVICE_BYTES = 1 << 50
"""Stands for the device's memory where no limit is given."""


def _by_address(block: Block) -> int:
    return block.address


class ExpandableSegments:
    """The growing segments of one allocator.

    Args:
        allocator: Whose they are; it counts what is mapped.
        device_bytes: Memory of the device: a segment has 9/8 of it in addresses. None: no limit.
    """

    def __init__(self, allocator: CachingAllocator, device_bytes: int | None) -> None:
        self._allocator = allocator
        device = device_bytes if device_bytes is not None else UNLIMITED_DEVICE_BYTES
        self._address_bytes = device + device // 8

    def best_fit(self, pool: Pool, place: int) -> Block:
        """The free block to use, from `place` in the order of the search on.

        A block that can still grow counts as large as it can grow to, so a larger one that
        cannot is preferred to it.
        """
        keys = pool.keys
        block = pool.free[keys[place]]
        for later in range(place + 1, len(keys)):
            following = pool.free[keys[later]]
            if _reach(following) >= _reach(block):
                break
            block = following
        return block

    def grow(self, pool: Pool, size: int) -> Block | None:
        """A free block of at least `size` bytes with pages mapped as needed; None: refused."""
        block = self._room(pool, size)
        if not block.mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            following = block.after
            assert following is not None
            if not self._map(following, min(size - block.size, following.size)):
                return None
            block = following
        pool.remove(block)
        return block

    def unmap(self, free: list[Block]) -> None:
        """Gives back every page that lies wholly in one of these free blocks."""
        for block in free:
            self._unmap(block)

    def _room(self, pool: Pool, size: int) -> Block:
        """First of a run of free or unmapped blocks with `size` bytes, lowest address first."""
        for unmapped in pool.unmapped:
            left = unmapped.before
            first = left if left is not None and _is_usable(left) else unmapped
            block: Block | None = first
            room = 0
            while room < size and block is not None and _is_usable(block):
                room += block.size
                block = block.after
            if room >= size:
                return first
        return self.reserve(pool)

    def reserve(self, pool: Pool, address: int | None = None) -> Block:
        """A new segment without a page, at an address or where the driver puts it."""
        page = self._page(pool)
        total = -(-self._address_bytes // page) * page
        if address is None:
            address = self._allocator.driver.reserve_addresses(total)
        block = Block(address, total, pool)
        block.mapped = False
        block.expandable = address
        self._allocator.segments[address] = block
        insort(pool.unmapped, block, key=_by_address)
        return block

    def _page(self, pool: Pool) -> int:
        if pool.is_small:
            return SMALL_SEGMENT_BYTES
        return self._allocator.rules.large_segment_bytes

    def _map(self, block: Block, size: int) -> bool:
        """Puts memory behind the beginning of an unmapped block, whole pages; False: refused."""
        pool = block.pool
        page = self._page(pool)
        mapped = -(-size // page) * page
        allocator = self._allocator
        if not allocator.driver.take(mapped):
            return False
        _drop_unmapped(block)
        address = block.address
        block.mapped = True
        if mapped < block.size:
            rest = Block(address + mapped, block.size - mapped, pool)
            rest.mapped = False
            rest.expandable = block.expandable
            rest.put_after(block)
            block.size = mapped
            insort(pool.unmapped, rest, key=_by_address)
        self._merge(block)
        pool.insert(block)
        allocator.add_reserved(mapped)
        if allocator.watcher is not None:
            allocator.watcher("segment_map", address, mapped, pool.stream)
        return True

    def _unmap(self, block: Block) -> None:
        pool = block.pool
        assert block.expandable is not None
        page = self._page(pool)
        # Pages count from the beginning of the segment.
        base = block.expandable
        end = block.address + block.size
        first = base + -(-(block.address - base) // page) * page
        last = base + (end - base) // page * page
        if last <= first:
            return
        pool.remove(block)
        if first > block.address:
            left = Block(block.address, first - block.address, pool)
            left.expandable = base
            left.before = block.before
            if left.before is not None:
                left.before.after = left
            left.after = block
            block.before = left
            if left.before is None:
                self._allocator.segments[base] = left
            pool.insert(left)
        if last < end:
            right = Block(last, end - last, pool)
            right.expandable = base
            right.put_after(block)
            pool.insert(right)
        block.address = first
        block.size = last - first
        block.mapped = False
        self._merge(block)
        allocator = self._allocator
        allocator.driver.give(last - first)
        allocator.add_reserved(first - last)
        if allocator.watcher is not None:
            allocator.watcher("segment_unmap", first, last - first, pool.stream)
        if not block.is_split:
            del allocator.segments[base]
        else:
            insort(pool.unmapped, block, key=_by_address)

    def _merge(self, block: Block) -> None:
        """Swallows free neighbours that are mapped as it is."""
        left = block.before
        if left is not None and _is_usable(left) and left.mapped == block.mapped:
            _take_out(left)
            block.address = left.address
            block.size += left.size
            block.before = left.before
            if left.before is not None:
                left.before.after = block
            else:
                self._allocator.segments[block.address] = block
        right = block.after
        if right is not None and _is_usable(right) and right.mapped == block.mapped:
            _take_out(right)
            block.size += right.size
            block.after = right.after
            if right.after is not None:
                right.after.before = block


def _is_usable(block: Block) -> bool:
    return not block.is_allocated and not block.waiting


def _reach(block: Block) -> int:
    """How large a free block can grow."""
    following = block.after
    return block.size + (following.size if following is not None and not following.mapped else 0)


def _take_out(block: Block) -> None:
    if block.mapped:
        block.pool.remove(block)
    else:
        _drop_unmapped(block)


def _drop_unmapped(block: Block) -> None:
    unmapped = block.pool.unmapped
    del unmapped[bisect_left(unmapped, block.address, key=_by_address)]
