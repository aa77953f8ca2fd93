"""Blocks of device memory, and the free ones of one pool and stream in the order of the search."""

from __future__ import annotations

from bisect import bisect_left, insort

KEY_SHIFT = 56
"""Bits of an address in a key; device addresses are below 2**49."""


class Block:
    """A piece of a segment.

    Attributes:
        address, size: Bytes.
        requested: Bytes that were asked for; stale while the block is free.
        key: Place among the free blocks of its pool, by size and then address; 0 when it is not
            among them (allocated, waiting for another stream, or without memory behind it).
        before, after: Neighbours of the same segment.
        pool: Whose block it is.
        mapped: Whether there is memory behind its addresses; only expandable segments have
            blocks without.
        expandable: First address of the expandable segment it belongs to; None for others.
        waiting: Freed, while another stream may still use it.
        born: Searches of the large pools before it became free, for garbage collection.
    """

    # No slots: what most blocks never need stands in the class, which makes them quick to make.
    requested = 0
    key = 0
    before: Block | None = None
    after: Block | None = None
    mapped = True
    expandable: int | None = None
    waiting = False
    born = 0

    def __init__(self, address: int, size: int, pool: Pool) -> None:
        self.address = address
        self.size = size
        self.pool = pool

    @property
    def is_split(self) -> bool:
        """Whether it is only a part of its segment."""
        return self.before is not None or self.after is not None

    @property
    def is_allocated(self) -> bool:
        """Whether a tensor holds it."""
        return not self.key and not self.waiting and self.mapped

    @property
    def state(self) -> str:
        """As a snapshot of torch names it."""
        if self.waiting:
            return "active_awaiting_free"
        return "inactive" if self.key else "active_allocated"

    def put_after(self, left: Block) -> None:
        """Links it in as the right neighbour of `left`."""
        right = left.after
        self.before = left
        self.after = right
        left.after = self
        if right is not None:
            right.before = self


class Pool:
    """Free blocks of one kind (small or large) and stream.

    Attributes:
        is_small: Of requests up to 1 MiB.
        stream: CUDA stream.
        keys: Sorted keys of the free blocks.
        free: They by key.
        unmapped: Blocks of expandable segments without memory behind them, by address.
    """

    __slots__ = ("free", "is_small", "keys", "stream", "unmapped")

    def __init__(self, *, is_small: bool, stream: int) -> None:
        self.is_small = is_small
        self.stream = stream
        self.keys: list[int] = []
        self.free: dict[int, Block] = {}
        self.unmapped: list[Block] = []

    def insert(self, block: Block) -> None:
        """Makes a block free to use."""
        key = (block.size << KEY_SHIFT) | block.address
        block.key = key
        insort(self.keys, key)
        self.free[key] = block

    def remove(self, block: Block) -> None:
        """Takes a free block out."""
        key = block.key
        keys = self.keys
        del keys[bisect_left(keys, key)]
        del self.free[key]
        block.key = 0
