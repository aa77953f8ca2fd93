"""Replays the event stream of a traced run through the allocator's rules."""

from __future__ import annotations

from collections.abc import Sequence

from bsprof.predict.allocator.blocks import Block
from bsprof.predict.allocator.caching import CachingAllocator
from bsprof.predict.allocator.outcome import PartPeaks, Refusal, Replay, Verdict
from bsprof.predict.allocator.owners import draw_timeline, find_peak
from bsprof.predict.allocator.refused import DeviceOutOfMemory
from bsprof.predict.allocator.rules import AllocatorRules
from bsprof.predict.allocator.schedule import Part, Schedule
from bsprof.predict.stream import Insertion, Stream


def replay(
    stream: Stream,
    insertions: Sequence[Insertion],
    rules: AllocatorRules,
    capacity_bytes: int | None,
    *,
    device_bytes: int | None = None,
    timeline: bool = False,
) -> Replay:
    """What the allocator does with a run, up to its end or to the request it must refuse.

    An insertion at position p comes after the first p events. One that is freed where it is made
    is in use only there; it counts to the part of the run before a mark at p, one that stays to
    the part after it.

    Args:
        stream: Of the traced run.
        insertions: What else takes memory from the allocator, in any order.
        rules: Of the generation of torch, with its options.
        capacity_bytes: What the allocator may take from the driver; None: no limit.
        device_bytes: Of the whole device, as `CachingAllocator` takes it.
        timeline: Whether to draw up the timeline of the update with the peak.

    Raises:
        ValueError: An insertion outside the stream.
    """
    allocator = CachingAllocator(rules, capacity_bytes, device_bytes=device_bytes)
    return run(Schedule.of(stream, insertions), allocator, timeline=timeline)


def run(schedule: Schedule, allocator: CachingAllocator, *, timeline: bool = False) -> Replay:
    """As `replay`, with an allocator that the caller may look at afterwards.

    A schedule may be run any number of times, an allocator once.
    """
    allocate = allocator.allocate
    free = allocator.free
    operations = schedule.operations
    sizes = schedule.sizes
    streams = schedule.streams
    blocks: list[Block | None] = [None] * len(sizes)
    deltas: list[int] = []
    reserved: list[tuple[int, int]] = []
    if timeline:
        _watch(allocator, deltas, reserved)
    parts: list[PartPeaks] = []
    refusal: Refusal | None = None
    for part in schedule.parts:
        retries = allocator.alloc_retries
        begin_allocated = allocator.allocated_bytes
        allocator.reset_peaks()
        try:
            for code in operations[part.begin : part.end]:
                if code > 0:
                    index = code - 1
                    block = allocate(sizes[index], streams[index])
                    blocks[index] = block
                    deltas.append(block.size)
                else:
                    held = blocks[-code - 1]
                    assert held is not None, "freed before it was allocated"
                    deltas.append(-held.size)
                    free(held)
        except DeviceOutOfMemory as error:
            refusal = _refusal(schedule, part, len(deltas), error)
        parts.append(
            PartPeaks(
                update=part.update,
                micro_step=part.mark.micro_step if part.mark is not None else -1,
                phase=part.mark.phase if part.mark is not None else None,
                allocated_bytes=allocator.peak_allocated_bytes,
                reserved_bytes=allocator.peak_reserved_bytes,
                begin_allocated_bytes=begin_allocated,
                alloc_retries=allocator.alloc_retries - retries,
            )
        )
        if refusal is not None:
            break
    peak = find_peak(schedule, deltas)
    if refusal is not None:
        verdict = Verdict.OUT_OF_MEMORY
    else:
        verdict = Verdict.FITS_AFTER_FLUSH if allocator.alloc_retries else Verdict.FITS
    return Replay(
        verdict=verdict,
        capacity_bytes=allocator.driver.capacity_bytes,
        parts=tuple(parts),
        alloc_retries=allocator.alloc_retries,
        peak=peak,
        refusal=refusal,
        timeline=draw_timeline(schedule, deltas, reserved, peak) if timeline else None,
        inactive_split_bytes=allocator.inactive_split_bytes,
    )


def _watch(allocator: CachingAllocator, deltas: list[int], reserved: list[tuple[int, int]]) -> None:
    """Notes the reserved bytes at each operation that changes them, besides who watches already."""
    watcher = allocator.watcher

    def note(action: str, address: int, size: int, stream: int) -> None:
        reserved.append((len(deltas), allocator.reserved_bytes))
        if watcher is not None:
            watcher(action, address, size, stream)

    allocator.watcher = note


def _refusal(schedule: Schedule, part: Part, operation: int, error: DeviceOutOfMemory) -> Refusal:
    storage = schedule.operations[operation] - 1
    assert error.free_bytes is not None
    return Refusal(
        position=schedule.position(operation),
        mark=part.mark,
        module=schedule.owner(storage),
        category=schedule.category(storage),
        requested_bytes=error.requested_bytes,
        free_bytes=error.free_bytes,
        allocated_bytes=error.allocated_bytes,
        reserved_bytes=error.reserved_bytes,
    )
