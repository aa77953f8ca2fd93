"""Memory that the system has to hand out anew in every update of a run on a processor.

The C library keeps what is freed, but not all of it: blocks from 32 MiB on are mapped apart and
unmapped when freed, and the top of the heap is given back once enough of it is free (glibc's
`malloc.c`, DEFAULT_MMAP_THRESHOLD_MAX and M_TRIM_THRESHOLD). Touching memory that comes from the
system costs a page fault for every page, which can be a third of a convolutional network's step.
What the library does with a run's allocations is asked of the library itself: a small process plays
them on its own heap.

Matrix products by MKL keep buffers of their own, which lie high in the heap and hold its top in
place: then only the mapped blocks are fresh. oneDNN's convolutions take no such buffers, but copies
of what they read and write, in a layout of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from bsprof.accounting.operators import OperatorClass
from bsprof.predict.stream import Operator, Stream
from bsprof.predict.terms.onednn import layout_copies
from bsprof.records import Phase

MAPPED_BYTES = 32 * 2**20
PLAY_LIMIT_S = 20.0
_PRODUCTS = (OperatorClass.MATMUL, OperatorClass.BATCHED_MATMUL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """Bytes that the system hands out anew.

    Attributes:
        micro_step: In the first micro-step of the last update.
        optimizer: In its optimizer step.
    """

    micro_step: int = 0
    optimizer: int = 0


def fresh_bytes(stream: Stream) -> Fresh:
    """What the last update of a run takes from the system."""
    update = max((mark.update for mark in stream.marks), default=0)
    marks = [mark for mark in stream.marks if mark.update == update]
    if not marks:
        return Fresh()
    ends = [*(mark.position for mark in marks[1:]), len(stream.events)]
    parts = [(mark.position, end) for mark, end in zip(marks, ends, strict=True)]
    steps = [mark.phase is Phase.OPTIMIZER_STEP for mark in marks]
    begin, end = parts[0]
    if _is_pinned([op for op in stream.operators if begin <= op.position <= end]):
        found: Sequence[int] | None = None
    else:
        found = _played(stream, [*(begin for begin, _end in parts), ends[-1]])
    if found is None:
        found = [_mapped(stream, begin, end) for begin, end in parts]
    return Fresh(
        micro_step=found[0],
        optimizer=sum(size for size, steps_now in zip(found, steps, strict=True) if steps_now),
    )


def _mapped(stream: Stream, begin: int, end: int) -> int:
    """Bytes of blocks that the C library maps apart, among some events."""
    sizes = (stream.sizes[event - 1] for event in stream.events[begin:end] if event > 0)
    return sum(size for size in sizes if size >= MAPPED_BYTES)


def _is_pinned(operators: Sequence[Operator]) -> bool:
    """Whether matrix products do most of the arithmetic."""
    products = others = 0
    for operator in operators:
        flops = int(operator.attributes.get("flops") or 0)
        if operator.attributes.get("operator_class") in _PRODUCTS:
            products += flops
        else:
            others += flops
    return products > others


def _played(stream: Stream, borders: Sequence[int]) -> list[int] | None:
    """What the C library took from the system between borders; None where it cannot be asked."""
    sizes = list(stream.sizes)
    events: list[int] = []
    copies: dict[int, list[tuple[int, ...]]] = {}
    for operator in stream.operators:
        copies.setdefault(operator.position, []).extend(layout_copies(operator))
    numbers: dict[int, int] = {}
    for position in range(borders[-1] + 1):
        numbers[position] = len(events)
        for group in copies.get(position, ()):
            made = range(len(sizes) + 1, len(sizes) + len(group) + 1)
            sizes += group
            events += [*made, *(-event for event in reversed(made))]
        if position < borders[-1]:
            events.append(stream.events[position])
    job = {
        "sizes": sizes,
        "events": events,
        "borders": [*(numbers[border] for border in borders[:-1]), len(events)],
    }
    found = find_spec("bsprof.measure.page_player")
    assert found is not None
    assert found.origin is not None
    try:
        done = subprocess.run(
            [sys.executable, "-I", found.origin],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            timeout=PLAY_LIMIT_S,
            check=True,
        )
        answer = json.loads(done.stdout)
    except (subprocess.SubprocessError, OSError, ValueError):
        return None
    return None if answer is None else [int(size) for size in answer]
