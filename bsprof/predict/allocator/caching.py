"""Torch's caching allocator on CUDA, rule by rule (`CUDACachingAllocator.cpp`).

Best fit among the free blocks of a pool and stream; splitting and merging inside a segment; a
segment from the driver when nothing fits; and, when the driver refuses, the steps down to out
of memory. CUDA-graph pools are not followed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from bsprof.predict.allocator.blocks import KEY_SHIFT, Block, Pool
from bsprof.predict.allocator.driver import Driver
from bsprof.predict.allocator.expandable import ExpandableSegments
from bsprof.predict.allocator.refused import DeviceOutOfMemory
from bsprof.predict.allocator.releasing import collect_garbage, release_oversize
from bsprof.predict.allocator.rules import MIN_BLOCK_BYTES, SMALL_BYTES, AllocatorRules

Watcher = Callable[[str, int, int, int], None]
"""Told of a segment's coming and going, as snapshots name it (`segment_alloc`, `segment_free`,
`segment_map`, `segment_unmap`), with address, size and stream."""

_NOTHING = Pool(is_small=True, stream=0)


class CachingAllocator:
    """One device's allocator.

    Args:
        rules: Constants and options.
        capacity_bytes: What the driver can give it: capacity less context and whatever else
            lies on the device. None: no limit.
        device_bytes: Memory of the whole device, which a memory fraction is a share of, and
            which decides the address space of expandable segments; None: `capacity_bytes`.
        driver: Where segments come from; None makes one with this capacity.
        watcher: Told of every segment that comes and goes.

    Attributes:
        allocated_bytes: Bytes of blocks that tensors hold; `peak_allocated_bytes` its maximum.
        reserved_bytes: Bytes taken from the driver; `peak_reserved_bytes` its maximum.
        alloc_retries: Times the cache was flushed because the driver refused.
        ooms: Times it gave up.
        allowed_bytes: What it may reserve under a memory fraction; None without one.
        large_searches: Searches of the large pools; how long a block has been free is counted in
            them.
        segments: The first block of every segment by its address.
    """

    def __init__(
        self,
        rules: AllocatorRules,
        capacity_bytes: int | None = None,
        *,
        device_bytes: int | None = None,
        driver: Driver | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.rules = rules
        self.driver = driver or Driver(capacity_bytes)
        self.watcher = watcher
        self.allocated_bytes = 0
        self.peak_allocated_bytes = 0
        self._waiting_bytes = 0
        self.reserved_bytes = 0
        self.peak_reserved_bytes = 0
        self.alloc_retries = 0
        self.ooms = 0
        self.large_searches = 0
        self.segments: dict[int, Block] = {}
        device = device_bytes if device_bytes is not None else self.driver.capacity_bytes
        self.allowed_bytes = (
            None
            if rules.memory_fraction is None or device is None
            else int(rules.memory_fraction * device)
        )
        self._collects = (
            self.allowed_bytes is not None and rules.garbage_collection_threshold is not None
        )
        self._rounds = bool(rules.divisions)
        self._max_split = rules.max_split_bytes
        self._searches_plainly = (
            self._max_split is None and not self._collects and not rules.expandable_segments
        )
        self._small: dict[int, Pool] = {}
        self._large: dict[int, Pool] = {}
        self._expandable = ExpandableSegments(self, device) if rules.expandable_segments else None
        self._waiting: list[Block] = []

    def allocate(self, requested_bytes: int, stream: int = 0) -> Block:
        """The block that a request gets; its size is what counts as allocated.

        A request for nothing takes no block; what it returns has size 0 and may be freed.

        Raises:
            DeviceOutOfMemory: Refused even after the flush.
        """
        if requested_bytes <= 0:
            return Block(0, 0, _NOTHING)
        if self._rounds:
            size = self.rules.block_bytes(requested_bytes)
        else:
            size = (requested_bytes + 511) & -512
        pools = self._small if size <= SMALL_BYTES else self._large
        pool = pools.get(stream)
        if pool is None:
            pool = pools[stream] = Pool(is_small=size <= SMALL_BYTES, stream=stream)
        if self._searches_plainly:
            keys = pool.keys
            place = bisect_left(keys, size << KEY_SHIFT)
            if place < len(keys):
                block = pool.free.pop(keys.pop(place))
                block.key = 0
            else:
                block = self._new_block(pool, size, requested_bytes)
        else:
            found = self._search(pool, size)
            block = found if found is not None else self._new_block(pool, size, requested_bytes)
        rest = block.size - size
        if rest and (
            rest >= MIN_BLOCK_BYTES
            if pool.is_small or self._expandable is not None
            else rest > SMALL_BYTES and (self._max_split is None or size < self._max_split)
        ):
            right = Block(block.address + size, rest, pool)
            right.before = block
            after = block.after
            if after is not None:
                right.after = after
                after.before = right
            block.after = right
            block.size = size
            key = right.key = (rest << KEY_SHIFT) | right.address
            insort(pool.keys, key)
            pool.free[key] = right
            if not self._searches_plainly:
                right.expandable = block.expandable
                right.born = self.large_searches
        block.requested = requested_bytes
        taken = block.size
        allocated = self.allocated_bytes = self.allocated_bytes + taken
        if allocated > self.peak_allocated_bytes:
            self.peak_allocated_bytes = allocated
        return block

    def free(self, block: Block) -> None:
        """Frees a block that no other stream uses: it merges with its free neighbours."""
        size = block.size
        if not size:
            return
        self.allocated_bytes -= size
        self._put_back(block)

    def free_later(self, block: Block) -> None:
        """Frees a block that another stream may still use (`record_stream`).

        It stays active, and is neither used again nor merged, until `complete`.
        """
        if block.size:
            self.allocated_bytes -= block.size
            self._waiting_bytes += block.size
            block.waiting = True
            self._waiting.append(block)

    def complete(self, block: Block) -> None:
        """The other streams are done with a block that was freed before."""
        if block.waiting:
            self._waiting.remove(block)
            self._waiting_bytes -= block.size
            block.waiting = False
            self._put_back(block)

    def empty_cache(self) -> None:
        """Waits for pending streams and gives every unsplit free block back to the driver."""
        for block in tuple(self._waiting):
            self.complete(block)
        for pools in (self._large, self._small):
            growing: list[Block] = []
            for _, pool in sorted(pools.items()):
                for block in tuple(map(pool.free.__getitem__, pool.keys)):
                    if block.expandable is not None:
                        growing.append(block)
                    elif not block.is_split:
                        self.release(block)
            if self._expandable is not None:
                self._expandable.unmap(growing)

    @property
    def active_bytes(self) -> int:
        """Allocated, or freed while another stream may still use it."""
        return self.allocated_bytes + self._waiting_bytes

    @property
    def requested_bytes(self) -> int:
        """Bytes that were asked for the active blocks."""
        return sum(
            block.requested for block in self.blocks() if block.is_allocated or block.waiting
        )

    @property
    def inactive_split_bytes(self) -> int:
        """Free bytes in segments that are partly in use, without expandable segments."""
        return sum(
            block.size
            for pool in self.pools()
            for block in pool.free.values()
            if block.is_split and block.expandable is None
        )

    def pools(self) -> tuple[Pool, ...]:
        """Every pool, large ones first, by stream."""
        return tuple(
            pool for pools in (self._large, self._small) for _, pool in sorted(pools.items())
        )

    def blocks(self) -> Iterator[Block]:
        """Every block, by segment and address."""
        for _, first in sorted(self.segments.items()):
            block: Block | None = first
            while block is not None:
                yield block
                block = block.after

    def reset_peaks(self) -> None:
        """Peaks start anew from what there is now."""
        self.peak_allocated_bytes = self.allocated_bytes
        self.peak_reserved_bytes = self.reserved_bytes

    def add_reserved(self, size: int) -> None:
        """Counts memory taken from the driver, or given back where negative."""
        self.reserved_bytes += size
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)

    def _put_back(self, block: Block) -> None:
        size = block.size
        pool = block.pool
        keys = pool.keys
        free = pool.free
        left = block.before
        if left is not None and left.key:
            key = left.key
            del keys[bisect_left(keys, key)]
            del free[key]
            size += left.size
            block.address = left.address
            left = block.before = left.before
            if left is not None:
                left.after = block
            else:
                self.segments[block.address] = block
        right = block.after
        if right is not None and right.key:
            key = right.key
            del keys[bisect_left(keys, key)]
            del free[key]
            size += right.size
            right = block.after = right.after
            if right is not None:
                right.before = block
        block.size = size
        key = block.key = (size << KEY_SHIFT) | block.address
        insort(keys, key)
        free[key] = block
        if not self._searches_plainly:
            block.born = self.large_searches

    def _search(self, pool: Pool, size: int) -> Block | None:
        """The free block to use, taken out of its pool, under whatever options are set."""
        if not pool.is_small:
            self.large_searches += 1
        keys = pool.keys
        place = bisect_left(keys, size << KEY_SHIFT)
        if place == len(keys):
            return None
        block = pool.free[keys[place]]
        if self._expandable is not None:
            block = self._expandable.best_fit(pool, place)
        limit = self._max_split
        if limit is not None:
            # Only this candidate is looked at, even where the next one would do.
            if size < limit <= block.size:
                return None
            if size >= limit and block.size >= size + self.rules.max_non_split_rounding_bytes:
                return None
        pool.remove(block)
        return block

    def _new_block(self, pool: Pool, size: int, requested_bytes: int) -> Block:
        """A block from the driver, after as much releasing as it takes."""
        if self._collects:
            collect_garbage(self)
        block = self._from_driver(pool, size)
        if block is None and release_oversize(self, pool, size):
            block = self._from_driver(pool, size)
        if block is None:
            self.empty_cache()
            self.alloc_retries += 1
            block = self._from_driver(pool, size)
        if block is None:
            self.ooms += 1
            raise DeviceOutOfMemory(
                requested_bytes=requested_bytes,
                segment_bytes=self.rules.segment_bytes(size),
                free_bytes=self.driver.free_bytes,
                allocated_bytes=self.allocated_bytes,
                reserved_bytes=self.reserved_bytes,
            )
        return block

    def _from_driver(self, pool: Pool, size: int) -> Block | None:
        segment_bytes = self.rules.segment_bytes(size)
        if (
            self.allowed_bytes is not None
            and self.reserved_bytes + segment_bytes > self.allowed_bytes
        ):
            return None
        if self._expandable is not None:
            return self._expandable.grow(pool, size)
        address = self.driver.allocate(segment_bytes)
        if address is None:
            return None
        block = Block(address, segment_bytes, pool)
        self.segments[address] = block
        self.add_reserved(segment_bytes)
        if self.watcher is not None:
            self.watcher("segment_alloc", address, segment_bytes, pool.stream)
        return block

    def release(self, block: Block) -> None:
        """Gives a free, unsplit segment back to the driver."""
        block.pool.remove(block)
        del self.segments[block.address]
        self.driver.give(block.size)
        self.add_reserved(-block.size)
        if self.watcher is not None:
            self.watcher("segment_free", block.address, block.size, block.pool.stream)
