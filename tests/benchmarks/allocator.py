"""Microseconds per event of the allocator's replay, beside a literal implementation of its rules.

python tests/benchmarks/allocator.py [LAYERS]
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from bsprof.predict.allocator import AllocatorRules, CachingAllocator, Schedule, run
from bsprof.predict.stream import Mark, Stream
from bsprof.records import Category, Phase

sys.path.insert(0, str(Path(__file__).parents[1] / "predict" / "allocator"))
from literal_allocator import Literal

TIMES = 7
"""Repetitions; the fastest is printed, which other programs disturb least."""

MIB = 1 << 20


def transformer(layers: int) -> Stream:
    """Three micro-steps in two updates, with the sizes of a transformer's tensors."""
    rng = random.Random(1)
    sizes: list[int] = []
    categories: list[Category] = []
    events: list[int] = []
    marks: list[Mark] = []

    def new(size: int, category: Category) -> int:
        sizes.append(size)
        categories.append(category)
        events.append(len(sizes))
        return len(sizes)

    def mark(update: int, micro_step: int, phase: Phase) -> None:
        place = len(events)
        marks.append(Mark(position=place, update=update, micro_step=micro_step, phase=phase))

    weight_sizes = (3584, 16 * 1024, 4 * MIB, 16 * MIB)
    weights = [new(rng.choice(weight_sizes), Category.WEIGHTS) for _ in range(12 * layers)]
    gradients: dict[int, int] = {}
    state: list[int] = []
    for update, window in enumerate((1, 2)):
        for micro_step in range(window):
            mark(update, micro_step, Phase.FORWARD_BACKWARD)
            kept = []
            for _ in weights:
                scratch = new(rng.choice((4, 8, 12)) * MIB, Category.TEMPORARIES)
                large = new(rng.choice((1, 3, 4)) * 12 * MIB, Category.ACTIVATIONS)
                kept.append((large, new(rng.randrange(4, 40_000), Category.ACTIVATIONS)))
                events.append(-scratch)
            for weight, (large, small) in zip(reversed(weights), reversed(kept), strict=True):
                gradient = new(sizes[weight - 1], Category.GRADIENTS)
                incoming = new(sizes[large - 1], Category.TEMPORARIES)
                events.extend((-large, -small, -incoming))
                if weight in gradients:
                    events.append(-gradient)
                else:
                    gradients[weight] = gradient
        mark(update, -1, Phase.OPTIMIZER_STEP)
        if not state:
            state = [new(2 * sizes[w - 1], Category.OPTIMIZER_STATE) for w in weights]
        copies = [new(sizes[w - 1], Category.TEMPORARIES) for w in weights]
        events.extend(-copy for copy in copies)
        events.extend(-gradient for gradient in gradients.values())
        gradients = {}
    return Stream(
        micro_batch_size=8,
        sizes=tuple(sizes),
        categories=tuple(categories),
        modules=(0,) * len(sizes),
        module_names=("model",),
        streams=(0,) * len(sizes),
        events=tuple(events),
        marks=tuple(marks),
        operators=(),
    )


def literally(schedule: Schedule) -> float:
    """Seconds of the literal implementation; once, since it is slow."""
    addresses = iter(range(1, 1 << 20))
    literal = Literal(None, lambda _size: next(addresses) << 40)
    taken = {}
    begin = time.perf_counter()
    for code in schedule.operations:
        if code > 0:
            taken[code] = literal.allocate(schedule.sizes[code - 1])
        else:
            literal.free(taken.pop(-code))
    return time.perf_counter() - begin


def fastest(schedule: Schedule, rules: AllocatorRules, capacity_bytes: int | None) -> float:
    """Seconds of one replay."""
    seconds = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        run(schedule, CachingAllocator(rules, capacity_bytes))
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def main() -> None:
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    schedule = Schedule.of(transformer(layers))
    events = len(schedule.operations)
    peak = run(schedule, CachingAllocator(AllocatorRules())).peak_reserved_bytes
    print(f"{events} events, {peak / (1 << 30):.1f} GiB reserved")
    cases = {
        "no limit": (AllocatorRules(), None),
        "99 % of what it reserves": (AllocatorRules(), int(0.99 * peak)),
        "expandable segments": (AllocatorRules(expandable_segments=True), None),
        "steps between powers of two": (AllocatorRules(divisions=(8,) * 16), None),
    }
    for name, (rules, capacity_bytes) in cases.items():
        print(f"{fastest(schedule, rules, capacity_bytes) / events * 1e6:8.2f} us/event  {name}")
    small = Schedule.of(transformer(2))
    slow, fast = literally(small), fastest(small, AllocatorRules(), None)
    print(f"{slow / fast:8.0f} times as fast as the literal one ({len(small.operations)} events)")


if __name__ == "__main__":
    main()
