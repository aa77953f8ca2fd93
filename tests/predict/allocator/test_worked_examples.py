"""What the reference says of single requests, and the way down to out of memory."""

from __future__ import annotations

import pytest

from bsprof.predict.allocator import AllocatorRules, CachingAllocator, DeviceOutOfMemory

MIB = 1 << 20


@pytest.fixture
def allocator():
    return CachingAllocator(AllocatorRules())


@pytest.mark.parametrize(
    ("requested", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (19 * MIB + MIB // 2, 20 * MIB, 20 * MIB),
        (19 * MIB, 20 * MIB, 20 * MIB),
        (19 * MIB - 512, 19 * MIB - 512, 20 * MIB),
        (21 * MIB, 22 * MIB, 22 * MIB),
    ],
)
def test_a_first_request_shows_as_blocks_and_reserves_segments(
    allocator, requested, allocated, reserved
):
    allocator.allocate(requested)
    assert allocator.allocated_bytes == allocated
    assert allocator.reserved_bytes == reserved
    assert allocator.requested_bytes == requested


def test_a_request_for_nothing_takes_no_block(allocator):
    block = allocator.allocate(0)
    allocator.free(block)
    assert allocator.reserved_bytes == 0


def test_freed_memory_is_used_again_on_its_stream_only(allocator):
    allocator.free(allocator.allocate(30 * MIB))
    allocator.allocate(30 * MIB, stream=1)
    assert allocator.reserved_bytes == 60 * MIB
    allocator.allocate(30 * MIB)
    assert allocator.reserved_bytes == 60 * MIB


def test_the_smallest_block_that_fits_is_taken_and_neighbours_merge(allocator):
    pieces = [allocator.allocate(4 * MIB) for _ in range(5)]
    allocator.free(pieces[1])
    allocator.free(pieces[3])
    assert allocator.inactive_split_bytes == 8 * MIB
    allocator.free(pieces[2])
    assert allocator.allocate(12 * MIB).address == pieces[0].address + 4 * MIB
    assert allocator.reserved_bytes == 20 * MIB


def test_fits_only_after_a_flush():
    allocator = CachingAllocator(AllocatorRules(), 100 * MIB)
    allocator.allocate(40 * MIB)
    allocator.free(allocator.allocate(50 * MIB))
    allocator.allocate(60 * MIB)
    assert allocator.alloc_retries == 1
    assert allocator.reserved_bytes == 100 * MIB


def test_a_flush_that_does_not_help_counts_as_well():
    allocator = CachingAllocator(AllocatorRules(), 100 * MIB)
    allocator.allocate(60 * MIB)
    with pytest.raises(DeviceOutOfMemory) as caught:
        allocator.allocate(41 * MIB)
    assert (allocator.alloc_retries, allocator.ooms) == (1, 1)
    assert caught.value.requested_bytes == 41 * MIB
    assert caught.value.free_bytes == 40 * MIB


def test_a_split_segment_is_not_flushed():
    allocator = CachingAllocator(AllocatorRules(), 40 * MIB)
    whole = allocator.allocate(20 * MIB)
    allocator.allocate(10 * MIB)
    allocator.free(whole)
    allocator.allocate(4 * MIB)
    with pytest.raises(DeviceOutOfMemory):
        allocator.allocate(20 * MIB)
    assert allocator.reserved_bytes == 30 * MIB


def test_a_block_that_another_stream_uses_waits(allocator):
    block = allocator.allocate(30 * MIB)
    allocator.free_later(block)
    assert (allocator.allocated_bytes, allocator.active_bytes) == (0, 30 * MIB)
    allocator.allocate(30 * MIB)
    assert allocator.reserved_bytes == 60 * MIB
    allocator.complete(block)
    allocator.allocate(30 * MIB)
    assert allocator.reserved_bytes == 60 * MIB


def test_a_flush_waits_for_other_streams():
    allocator = CachingAllocator(AllocatorRules(), 50 * MIB)
    allocator.free_later(allocator.allocate(30 * MIB))
    allocator.allocate(40 * MIB)
    assert allocator.alloc_retries == 1
    assert allocator.active_bytes == 40 * MIB
