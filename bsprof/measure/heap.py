"""Peak of the C heap at any micro-batch size, by replaying a recorded update on the real one.

On a CPU the limit counts what malloc asks of the system, and malloc is not affine: below 32 MiB
blocks share a heap that fragments, above it each has its own mapping (glibc's dynamic mmap
threshold). But the stream of allocations and frees of an update is the same at every size, with
each block's bytes affine in the micro-batch size. So two recorded sizes give the stream of any
other, and a small process plays it on its own heap: no arithmetic, no memory touched, a few
milliseconds. `HeapTrace` is what is recorded; `replay_peaks` plays it.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bsprof.errors import FitError
from bsprof.records import Quantity

REPLAY_LIMIT_S = 20.0
UPDATES = 2
"""Updates played: the second finds the holes that the first left."""
REACH_DOUBLINGS = 12
GRID = 32
"""Sizes played between one that surely fits and one that surely does not."""
FLOOR_SHARE = 0.03
"""Half width of a modelled peak's interval at the least. Six sweeps of a small GPT up to 16 or 32
samples gave a largest size within 5.5 % of the 130 at which fresh processes end, 3 % typically."""
EXTRAPOLATION_SHARE = 0.004
"""Further half width per doubling beyond the largest measured size (heuristic)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapTrace:
    """Allocations and frees of one steady update at one size, in order.

    Attributes:
        micro_batch_size: The size it was recorded at.
        resident_bytes: Bytes of each block that lives throughout: weights, optimizer state, batch.
        blocks: Number of the block of each event; a block is allocated once and freed at most
            once.
        changes: Bytes of each event: positive allocates, negative frees.
    """

    micro_batch_size: int
    resident_bytes: tuple[int, ...]
    blocks: tuple[int, ...]
    changes: tuple[int, ...]

    def is_like(self, other: HeapTrace) -> bool:
        """Whether both are one stream, but for the bytes."""
        return (
            self.blocks == other.blocks
            and len(self.resident_bytes) == len(other.resident_bytes)
            and all((a > 0) == (b > 0) for a, b in zip(self.changes, other.changes, strict=True))
        )


def trace_of(
    micro_batch_size: int, resident_bytes: Sequence[int], events: Sequence[tuple[int, int]]
) -> HeapTrace:
    """A trace from raw events.

    Args:
        micro_batch_size: The size it was recorded at.
        resident_bytes: As in `HeapTrace`.
        events: (address, signed bytes) in order; frees of blocks from before the recording are
            left out.
    """
    live: dict[int, int] = {}
    blocks: list[int] = []
    changes: list[int] = []
    count = 0
    for address, change in events:
        if change > 0:
            if address in live:  # freed between two recorded phases
                blocks.append(live.pop(address))
                changes.append(-1)
            live[address] = count
            blocks.append(count)
            changes.append(change)
            count += 1
        elif address in live:
            blocks.append(live.pop(address))
            changes.append(change)
    return HeapTrace(
        micro_batch_size=micro_batch_size,
        resident_bytes=tuple(resident_bytes),
        blocks=tuple(blocks),
        changes=tuple(changes),
    )


def like_pair(traces: Sequence[HeapTrace]) -> tuple[HeapTrace, HeapTrace] | None:
    """The two traces of one stream that lie furthest apart, the larger as large as possible."""
    ordered = sorted(traces, key=lambda t: t.micro_batch_size)
    for large in reversed(ordered):
        for small in ordered:
            if small.micro_batch_size < large.micro_batch_size and small.is_like(large):
                return small, large
    return None


def replay_peaks(pair: tuple[HeapTrace, HeapTrace], sizes: Sequence[int]) -> dict[int, float]:
    """Bytes by which the data segment of a process grows at its peak, for each size.

    Args:
        pair: Two traces of one stream at different sizes.
        sizes: Micro-batch sizes to play.

    Returns:
        Bytes by size; infinity where this machine's own memory would not do.

    Raises:
        FitError: the player did not end well (it needs Linux and glibc's posix_memalign).
    """
    small, large = pair
    span = large.micro_batch_size - small.micro_batch_size
    job = {
        "blocks": small.blocks,
        "allocates": [change > 0 for change in small.changes],
        "updates": UPDATES,
        "sizes": list(sizes),
        "origin": small.micro_batch_size,
        "changes": [[a, (b - a) / span] for a, b in zip(small.changes, large.changes, strict=True)],
        "resident": [
            [a, (b - a) / span]
            for a, b in zip(small.resident_bytes, large.resident_bytes, strict=True)
        ],
    }
    try:
        done = subprocess.run(
            [sys.executable, "-I", _player_path()],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            timeout=REPLAY_LIMIT_S,
            check=True,
        )
        peaks = json.loads(done.stdout)
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        raise FitError("cannot replay the heap", found=str(error)) from error
    if set(map(int, peaks)) != set(sizes):
        raise FitError("cannot replay the heap", found="the player did not end at every size")
    return {int(size): math.inf if peak is None else peak for size, peak in peaks.items()}


def _player_path() -> str:
    from importlib.util import find_spec

    found = find_spec("bsprof.measure.heap_player")
    assert found is not None
    assert found.origin is not None
    return found.origin


@dataclass(frozen=True, slots=True)
class HeapModel:
    """What counts against the limit at any size: `offset + (1 + excess) * replayed growth`.

    `offset` is what the process holds before the update (interpreter, torch, threads); `excess`
    is memory that torch's allocator does not see but that grows with the size (libraries'
    scratch, fragments).
    """

    pair: tuple[HeapTrace, HeapTrace]
    offset_bytes: float
    excess: float
    scatter: float
    largest_measured: int

    def used_bytes(self, sizes: Sequence[int]) -> dict[int, float]:
        """Bytes that count against the limit at each size."""
        peaks = replay_peaks(self.pair, sizes)
        return {b: self.offset_bytes + (1 + self.excess) * peak for b, peak in peaks.items()}

    def half_width(self, size: int) -> float:
        """Half of the 90 % interval of `used_bytes`, as a share of it."""
        doublings = max(0, (size // self.largest_measured).bit_length() - 1)
        return max(FLOOR_SHARE, self.scatter) + EXTRAPOLATION_SHARE * doublings


def fit_heap(
    traces: Sequence[HeapTrace], used_bytes: dict[int, int], held_bytes: float
) -> HeapModel:
    """The heap model of a workload.

    The excess is fitted by least squares of relative errors. The offset is measured, not fitted:
    small sizes scatter by a percent or two, and a fitted offset would trade that for excess.

    Args:
        traces: Recorded updates, two sizes of one stream at least.
        used_bytes: Measured peaks that count against the limit, by size; two at least.
        held_bytes: What the process held before the first update, without the weights.

    Raises:
        FitError: no two traces are of one stream, or nothing measured beside them.
    """
    pair = like_pair(traces)
    sizes = sorted(used_bytes)
    if pair is None or len(sizes) < 2:
        raise FitError("cannot model the heap", found="fewer than two like updates recorded")
    grown = replay_peaks(pair, sizes)
    if not 0 < max(grown.values()) < math.inf:
        raise FitError("cannot model the heap", found="no growth of it with the update")
    weights = {b: grown[b] / used_bytes[b] ** 2 for b in sizes}
    beyond = sum(w * (used_bytes[b] - held_bytes - grown[b]) for b, w in weights.items())
    excess = max(0.0, beyond / sum(w * grown[b] for b, w in weights.items()))
    off = [(held_bytes + (1 + excess) * grown[b]) / used_bytes[b] - 1 for b in sizes]
    return HeapModel(
        pair=pair,
        offset_bytes=held_bytes,
        excess=excess,
        scatter=math.sqrt(sum(x * x for x in off) / len(off)),
        largest_measured=sizes[-1],
    )


def largest_by_heap(model: HeapModel, usable_bytes: int, start: int) -> Quantity | None:
    """The largest size up to which every predicted peak is within the limit; 90 % interval.

    A heap is not monotone: a larger size may fit again where blocks outgrow the shared heap. Up
    to the first size that does not fit is what a user can rely on.

    Args:
        model: The heap model.
        usable_bytes: The limit.
        start: A size that is known to fit.

    Returns:
        None where memory does not grow with the size, as far as the replay reaches.
    """
    used = model.used_bytes([start * 2**k for k in range(REACH_DOUBLINGS + 1)])
    certain = [b for b, u in used.items() if u * (1 + model.half_width(b)) <= usable_bytes]
    beyond = [b for b, u in used.items() if u * (1 - model.half_width(b)) > usable_bytes]
    if not beyond:
        return None
    low, high = max(certain, default=start), min(beyond)
    stride = max(1, (high - low) // GRID)
    grid = sorted({*range(low, high, stride), high - 1})
    used = model.used_bytes(grid)
    ends = []
    for shift in (1.0, 0.0, -1.0):
        bad = [b for b in grid if used[b] * (1 + shift * model.half_width(b)) > usable_bytes]
        ends.append(max(start, min(bad) - 1 if bad else high - 1))
    return Quantity.ordered(ends[1], ends[0], ends[2])
