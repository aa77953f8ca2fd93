"""Segments given back before, or instead of, a flush of the whole cache."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from bsprof.predict.allocator.blocks import KEY_SHIFT, Pool

if TYPE_CHECKING:
    from bsprof.predict.allocator.caching import CachingAllocator


def release_oversize(allocator: CachingAllocator, pool: Pool, size: int) -> bool:
    """Releases just enough blocks that are never split; whether that was enough."""
    limit = allocator.rules.max_split_bytes
    if limit is None:
        return False
    wanted = max(size, limit)
    place = bisect_left(pool.keys, wanted << KEY_SHIFT)
    candidates = [pool.free[key] for key in pool.keys]
    if place < len(candidates) and candidates[place].expandable is None:
        allocator.release(candidates[place])
        return True
    released = 0
    for block in reversed(candidates[:place]):
        if released >= wanted or block.size < limit or block.expandable is not None:
            break
        released += block.size
        allocator.release(block)
    return released >= wanted


def collect_garbage(allocator: CachingAllocator) -> None:
    """Drops large segments that have been free for longest, once past the threshold.

    Those that have been free for at least the mean time go, again and again until enough is
    released; time is counted in searches.
    """
    share, allowed = allocator.rules.garbage_collection_threshold, allocator.allowed_bytes
    if share is None or allowed is None:
        return
    wanted = allocator.reserved_bytes - int(share * allowed)
    if wanted <= 0:
        return
    idle = [
        block
        for pool in allocator.pools()
        if not pool.is_small
        for block in map(pool.free.__getitem__, pool.keys)
        if not block.is_split
    ]
    while wanted > 0 and idle:
        ages = [allocator.large_searches - block.born for block in idle]
        threshold = sum(ages) / len(ages)
        old = [block for block, age in zip(idle, ages, strict=True) if age >= threshold]
        for block in old:
            wanted -= block.size
            idle.remove(block)
            allocator.release(block)
