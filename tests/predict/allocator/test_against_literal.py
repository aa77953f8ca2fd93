"""The fast allocator against the literal one, on random runs under every option."""

from __future__ import annotations

import random

import pytest
from literal_allocator import MIB, Literal, OutOfMemory

from bsprof.predict.allocator import AllocatorRules, CachingAllocator, DeviceOutOfMemory
from bsprof.predict.allocator.driver import Driver
from bsprof.predict.target import Software

DEVICE = 240 * MIB
SETTINGS = {
    "plain": ("", {}),
    "expandable": ("expandable_segments:True", {"expandable": True}),
    "expandable, small pages": (
        "expandable_segments:True,large_segment_size_mb:12",
        {"expandable": True, "large": 12 * MIB},
    ),
    "max split": ("max_split_size_mb:24", {"max_split": 24 * MIB}),
    "max split, rounding": (
        "max_split_size_mb:24,max_non_split_rounding_mb:40",
        {"max_split": 24 * MIB, "rounding": 40 * MIB},
    ),
    "divisions": ("roundup_power2_divisions:4", {"divisions": 4}),
    "large segments": ("large_segment_size_mb:30", {"large": 30 * MIB, "rounding": 30 * MIB}),
    "fraction": ("per_process_memory_fraction:0.7", {"fraction": 0.7}),
    "collection": (
        "per_process_memory_fraction:0.9,garbage_collection_threshold:0.5",
        {"fraction": 0.9, "threshold": 0.5},
    ),
    "collection, max split": (
        "garbage_collection_threshold:0.6,max_split_size_mb:30,per_process_memory_fraction:0.8",
        {"fraction": 0.8, "threshold": 0.6, "max_split": 30 * MIB},
    ),
    "expandable, max split": (
        "expandable_segments:True,max_split_size_mb:40",
        {"expandable": True, "max_split": 40 * MIB},
    ),
}


def scattered(seed):
    """Addresses in no order, as a driver may give them; the same for the same seed."""
    rng = random.Random(seed)
    free = list(range(1, 4000))
    rng.shuffle(free)
    return lambda _size: free.pop() << 32


class ScatteredDriver(Driver):
    def __init__(self, capacity, place):
        super().__init__(capacity)
        self.place = place

    def reserve_addresses(self, size):
        return self.place(size)


def some_size(rng):
    kind = rng.random()
    if kind < 0.35:
        return rng.choice([1, 512, 513, 4096, 100_000, 300 * 1024, MIB - 1, MIB])
    if kind < 0.7:
        return rng.randrange(MIB, 12 * MIB)
    return rng.choice([10 * MIB, 19 * MIB, 23 * MIB, 24 * MIB, 31 * MIB, 47 * MIB + 5, 80 * MIB])


def sides(name, seed):
    conf, options = SETTINGS[name]
    rules = AllocatorRules.of(Software(torch=(2, 14)), conf)
    fast = CachingAllocator(rules, driver=ScatteredDriver(DEVICE, scattered(seed)))
    return fast, Literal(DEVICE, scattered(seed), **options)


def layout(allocator):
    blocks = []
    for block in allocator.segments.values():
        while block is not None:
            if block.mapped:
                state = "free" if block.key else "waiting" if block.waiting else "taken"
                blocks.append((block.address, block.size, state))
            if block.after is not None:
                assert block.after.before is block
                assert block.after.address == block.address + block.size
            block = block.after
    return sorted(blocks)


def numbers(allocator):
    if isinstance(allocator, Literal):
        return (
            allocator.allocated,
            allocator.active,
            allocator.requested,
            allocator.reserved,
            allocator.inactive_split,
            allocator.retries,
            allocator.ooms,
        )
    return (
        allocator.allocated_bytes,
        allocator.active_bytes,
        allocator.requested_bytes,
        allocator.reserved_bytes,
        allocator.inactive_split_bytes,
        allocator.alloc_retries,
        allocator.ooms,
    )


def run_both(name, seed, steps=200):
    fast, literal = sides(name, seed)
    told = []
    fast.watcher = lambda action, address, size, stream: told.append(
        (action, address, size, stream)
    )
    rng = random.Random(seed)
    held = []
    waiting = []
    for _ in range(steps):
        choice = rng.random()
        if choice < 0.52 or not held:
            size, stream = some_size(rng), rng.choice([0, 0, 0, 7])
            try:
                taken = literal.allocate(size, stream)
            except OutOfMemory:
                with pytest.raises(DeviceOutOfMemory):
                    fast.allocate(size, stream)
                waiting.clear()
                for _ in range(len(held) // 2):
                    block, taken = held.pop(rng.randrange(len(held)))
                    fast.free(block)
                    literal.free(taken)
            else:
                block = fast.allocate(size, stream)
                assert (block.address, block.size) == (taken.start, taken.size)
                held.append((block, taken))
                waiting = [pair for pair in waiting if pair[1].waiting and pair[0].waiting]
        elif choice < 0.92:
            block, taken = held.pop(rng.randrange(len(held)))
            fast.free(block)
            literal.free(taken)
        elif choice < 0.97:
            block, taken = held.pop(rng.randrange(len(held)))
            fast.free_later(block)
            literal.free_later(taken)
            waiting.append((block, taken))
        elif waiting:
            block, taken = waiting.pop(rng.randrange(len(waiting)))
            if block.waiting:
                fast.complete(block)
                literal.give_back(taken)
        elif choice > 0.995:
            fast.empty_cache()
            literal.empty_cache()
            waiting.clear()
        assert numbers(fast) == numbers(literal)
    assert layout(fast) == literal.layout()
    recorded = [
        (entry["action"], entry["addr"], entry["size"], entry["stream"])
        for entry in literal.history
        if entry["action"].startswith("segment_")
    ]
    assert told == recorded
    return fast, literal


@pytest.mark.parametrize("name", SETTINGS)
def test_both_do_the_same(name):
    retries = ooms = 0
    for seed in range(3):
        fast, _ = run_both(name, seed)
        retries += fast.alloc_retries
        ooms += fast.ooms
    # Else the runs would show nothing of the way down to out of memory.
    assert retries > ooms > 0


@pytest.mark.parametrize("name", SETTINGS)
def test_blocks_cover_their_segments_and_free_neighbours_are_merged(name):
    fast, _ = run_both(name, seed=11)
    for block in fast.segments.values():
        assert block.before is None
        while block.after is not None:
            assert not (block.key and block.after.key)
            block = block.after
    mapped = [size for _, size, _ in layout(fast)]
    assert sum(mapped) == fast.reserved_bytes == fast.driver.used_bytes
    taken = [size for _, size, state in layout(fast) if state == "taken"]
    assert sum(taken) == fast.allocated_bytes


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("seed", range(100, 105))
def test_both_do_the_same_for_long(name, seed):
    run_both(name, seed, steps=1200)
