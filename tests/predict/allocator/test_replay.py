"""Replays of a stream: peaks by part, owners at the peak, refusals, insertions, the timeline."""

from __future__ import annotations

import random

import pytest

from bsprof.predict.allocator import (
    AllocatorRules,
    CachingAllocator,
    Schedule,
    Verdict,
    needed_bytes,
    replay,
    run,
)
from bsprof.predict.allocator.owners import TIMELINE_POINTS
from bsprof.predict.stream import Insertion, Mark, Operator, Stream
from bsprof.records import Category, Phase

MIB = 1 << 20
RULES = AllocatorRules()


class Builder:
    """Writes streams by hand."""

    def __init__(self):
        self.sizes, self.categories, self.modules, self.events = [], [], [], []
        self.names, self.marks, self.operators = [], [], []

    def new(self, size, category=Category.TEMPORARIES, module="model"):
        if module not in self.names:
            self.names.append(module)
        self.sizes.append(size)
        self.categories.append(category)
        self.modules.append(self.names.index(module))
        self.events.append(len(self.sizes))
        return len(self.sizes)

    def drop(self, storage):
        self.events.append(-storage)

    def mark(self, update, phase, micro_step=0):
        place = len(self.events)
        self.marks.append(Mark(position=place, update=update, micro_step=micro_step, phase=phase))

    def operator(self, name="aten.mm"):
        self.operators.append(
            Operator(
                position=len(self.events),
                name=name,
                module=0,
                phase=None,
                backward=False,
                inputs=(),
                outputs=(),
            )
        )

    def stream(self):
        return Stream(
            micro_batch_size=1,
            sizes=tuple(self.sizes),
            categories=tuple(self.categories),
            modules=tuple(self.modules),
            module_names=tuple(self.names),
            streams=(0,) * len(self.sizes),
            events=tuple(self.events),
            marks=tuple(self.marks),
            operators=tuple(self.operators),
        )


def training():
    """Weights and gradients of 40 MiB, activations of about 100, state of 80 from update 0 on."""
    build = Builder()
    weights = build.new(40 * MIB, Category.WEIGHTS, "net.0")
    assert weights == 1
    for update in (0, 1):
        build.mark(update, Phase.FORWARD_BACKWARD)
        kept = build.new(60 * MIB, Category.ACTIVATIONS, "net.0")
        more = build.new(41 * MIB + 5, Category.ACTIVATIONS, "net.1")
        build.operator()
        gradients = build.new(40 * MIB, Category.GRADIENTS, "net.0")
        build.drop(more)
        build.drop(kept)
        build.mark(update, Phase.OPTIMIZER_STEP, -1)
        if not update:
            build.new(80 * MIB, Category.OPTIMIZER_STATE, "net.0")
        build.drop(gradients)
    return build.stream()


def test_peaks_by_part_phase_and_update():
    found = replay(training(), (), RULES, None)
    assert found.verdict is Verdict.FITS
    assert [(part.update, part.phase) for part in found.parts] == [
        (-1, None),
        (0, Phase.FORWARD_BACKWARD),
        (0, Phase.OPTIMIZER_STEP),
        (1, Phase.FORWARD_BACKWARD),
        (1, Phase.OPTIMIZER_STEP),
    ]
    odd = 42 * MIB  # 41 MiB and five bytes: a segment of 42, the rest too small to split off
    assert [part.allocated_bytes for part in found.parts] == [
        40 * MIB,
        140 * MIB + odd,
        160 * MIB,
        220 * MIB + odd,
        160 * MIB,
    ]
    assert found.resident_bytes == 120 * MIB
    assert found.steady_allocated_bytes == found.peak_allocated_bytes == 220 * MIB + odd
    assert found.first_update_allocated_bytes == 140 * MIB + odd
    assert found.allocated_by_phase() == {
        Phase.FORWARD_BACKWARD: 220 * MIB + odd,
        Phase.OPTIMIZER_STEP: 160 * MIB,
    }
    assert found.by_update()[-1] == (40 * MIB, 40 * MIB)
    assert found.reserved_by_phase()[Phase.OPTIMIZER_STEP] == found.peak_reserved_bytes


def test_whose_the_peak_is():
    stream = training()
    peak = replay(stream, (), RULES, None).peak
    assert peak.mark is not None
    assert (peak.mark.update, peak.mark.phase) == (1, Phase.FORWARD_BACKWARD)
    assert peak.position == stream.marks[2].position + 3
    assert peak.operator == 1
    assert peak.module == "net.0"
    assert peak.by_category == {
        Category.WEIGHTS: 40 * MIB,
        Category.OPTIMIZER_STATE: 80 * MIB,
        Category.ACTIVATIONS: 102 * MIB,
        Category.GRADIENTS: 40 * MIB,
    }
    assert peak.by_module == (("net.0", 220 * MIB), ("net.1", 42 * MIB))
    assert sum(peak.by_category.values()) == peak.allocated_bytes


def test_out_of_memory_says_where():
    found = replay(training(), (), RULES, 200 * MIB)
    assert found.verdict is Verdict.OUT_OF_MEMORY
    refusal = found.refusal
    assert refusal is not None
    assert refusal.mark is not None
    assert (refusal.mark.update, refusal.mark.phase) == (1, Phase.FORWARD_BACKWARD)
    assert (refusal.module, refusal.category) == ("net.1", Category.ACTIVATIONS)
    assert refusal.requested_bytes == 41 * MIB + 5
    assert refusal.free_bytes < 42 * MIB
    assert refusal.reserved_bytes + refusal.free_bytes == 200 * MIB
    assert found.parts[-1].phase is Phase.FORWARD_BACKWARD
    assert found.peak.allocated_bytes == found.steady_allocated_bytes


def test_out_of_memory_before_anything():
    found = replay(training(), (), RULES, 10 * MIB)
    assert found.verdict is Verdict.OUT_OF_MEMORY
    assert found.refusal is not None
    assert found.refusal.position == 0
    assert found.peak.allocated_bytes == 0
    assert found.peak.by_category == {}


def test_a_run_that_fits_only_after_a_flush():
    build = Builder()
    build.mark(0, Phase.FORWARD)
    for size in (30, 40, 50):
        build.drop(build.new(size * MIB))
    found = replay(build.stream(), (), RULES, 100 * MIB)
    assert found.verdict is Verdict.FITS_AFTER_FLUSH
    assert found.alloc_retries == 1
    assert replay(build.stream(), (), RULES, 120 * MIB).verdict is Verdict.FITS
    schedule = Schedule.of(build.stream())
    assert needed_bytes(schedule, RULES) == 50 * MIB
    assert needed_bytes(schedule, RULES, flushes=False) == 120 * MIB


def test_inference_has_one_update_and_it_is_steady():
    build = Builder()
    build.new(2 * MIB, Category.WEIGHTS)
    build.mark(0, Phase.FORWARD)
    build.drop(build.new(30 * MIB))
    found = replay(build.stream(), (), RULES, None)
    assert found.steady_allocated_bytes == 32 * MIB
    assert found.allocated_by_phase() == {Phase.FORWARD: 32 * MIB}


def workspace(position, size, until, name="workspace"):
    return Insertion(position=position, bytes=size, until=until, name=name)


def test_a_workspace_is_in_use_where_it_stands_only():
    stream = training()
    at = stream.operators[1].position
    found = replay(stream, (workspace(at, 100 * MIB, at),), RULES, None)
    assert found.steady_allocated_bytes == (40 + 80 + 60 + 42 + 100) * MIB
    assert found.peak.by_category[Category.LIBRARIES] == 100 * MIB
    assert found.peak.module == "workspace"
    assert found.peak.position == at
    assert Category.GRADIENTS not in found.peak.by_category


def test_insertions_come_in_any_order_and_stay_until_told():
    stream = training()
    end = len(stream.events)
    inserted = [
        workspace(end, 0, None, "nothing"),
        workspace(6, 30 * MIB, 8, "for a while"),
        workspace(0, 32 * MIB, None, "for good"),
    ]
    found = replay(stream, inserted, RULES, None)
    assert found.parts[0].allocated_bytes == 72 * MIB
    assert replay(stream, inserted[::-1], RULES, None) == found
    assert found.resident_bytes == 152 * MIB


def test_at_a_mark_a_workspace_counts_before_it_and_what_stays_after_it():
    build = Builder()
    build.new(2 * MIB)
    build.mark(0, Phase.FORWARD)
    build.new(2 * MIB)
    stream = build.stream()
    (before, after) = replay(stream, (workspace(1, 50 * MIB, 1),), RULES, None).parts
    assert (before.allocated_bytes, after.allocated_bytes) == (52 * MIB, 4 * MIB)
    (before, after) = replay(stream, (workspace(1, 50 * MIB, 2),), RULES, None).parts
    assert (before.allocated_bytes, after.allocated_bytes) == (2 * MIB, 54 * MIB)


@pytest.mark.parametrize(("position", "until"), [(-1, None), (99, None), (3, 2), (3, 99)])
def test_an_insertion_outside_the_stream_is_refused(position, until):
    with pytest.raises(ValueError, match="workspace"):
        replay(training(), (workspace(position, 5, until),), RULES, None)


def some_run(seed, storages=1500):
    rng = random.Random(seed)
    build = Builder()
    held = []
    categories = tuple(Category)
    for update in (0, 1):
        for phase in (Phase.FORWARD_BACKWARD, Phase.ACCUMULATION, Phase.OPTIMIZER_STEP):
            build.mark(update, phase)
            for _ in range(storages // 6):
                size = rng.choice([0, 100, 4096, MIB, 3 * MIB, rng.randrange(40 * MIB)])
                module = f"m{rng.randrange(9)}"
                held.append(build.new(size, rng.choice(categories), module))
                build.operator()
                while held and rng.random() < 0.48:
                    build.drop(held.pop(rng.randrange(len(held))))
    stream = build.stream()
    end = len(stream.events)
    inserted = []
    for number in range(60):
        begin = rng.randrange(end + 1)
        until = rng.choice([begin, None, rng.randrange(begin, end + 1)])
        inserted.append(workspace(begin, rng.randrange(9 * MIB), until, f"w{number}"))
    return stream, inserted


@pytest.mark.parametrize("seed", range(4))
def test_numbers_of_a_random_run_agree_with_each_other(seed):
    stream, inserted = some_run(seed)
    unlimited = replay(stream, inserted, RULES, None, timeline=True)
    peak = unlimited.peak
    assert peak.allocated_bytes == unlimited.steady_allocated_bytes
    assert sum(peak.by_category.values()) == peak.allocated_bytes
    assert sum(size for _, size in peak.by_module) == peak.allocated_bytes
    owner = next(part for part in unlimited.parts if part.allocated_bytes == peak.allocated_bytes)
    assert peak.mark is not None
    assert (owner.update, owner.phase) == (peak.mark.update, peak.mark.phase)
    for part in unlimited.parts:
        assert part.allocated_bytes <= part.reserved_bytes
    # A capacity that the run does not reach changes nothing.
    at_peak = replay(stream, inserted, RULES, unlimited.peak_reserved_bytes)
    assert at_peak.verdict is Verdict.FITS
    assert at_peak.parts == unlimited.parts
    least = needed_bytes(Schedule.of(stream, inserted), RULES)
    assert unlimited.peak_allocated_bytes <= least <= unlimited.peak_reserved_bytes
    assert replay(stream, inserted, RULES, least).verdict is not Verdict.OUT_OF_MEMORY
    below = replay(stream, inserted, RULES, least - 2 * MIB)
    assert below.verdict is Verdict.OUT_OF_MEMORY
    assert below.refusal is not None


@pytest.mark.parametrize("seed", range(2))
def test_the_timeline_keeps_the_extremes(seed):
    stream, inserted = some_run(seed, storages=4000)
    found = replay(stream, inserted, RULES, None, timeline=True)
    timeline = found.timeline
    assert timeline is not None
    assert timeline.update == 1
    assert 100 < len(timeline.positions) <= TIMELINE_POINTS
    totals = [sum(values) for values in zip(*timeline.by_category.values(), strict=True)]
    assert max(totals) == found.peak.allocated_bytes
    place = totals.index(max(totals))
    assert timeline.positions[place] == found.peak.position
    at_peak = {c: values[place] for c, values in timeline.by_category.items() if values[place]}
    assert at_peak == found.peak.by_category
    assert totals[0] == found.resident_bytes
    assert list(timeline.positions) == sorted(timeline.positions)
    assert max(timeline.reserved_bytes) == found.steady_reserved_bytes
    assert all(a <= r for a, r in zip(totals, timeline.reserved_bytes, strict=True))
    assert [mark.update for mark in timeline.marks] == [1, 1, 1]


def test_expandable_segments_reserve_less():
    stream, inserted = some_run(1)
    rules = AllocatorRules(expandable_segments=True)
    growing = replay(stream, inserted, rules, None)
    assert growing.peak_reserved_bytes < replay(stream, inserted, RULES, None).peak_reserved_bytes
    assert growing.inactive_split_bytes == 0


def test_a_schedule_runs_again_and_the_allocator_can_be_looked_at():
    stream, inserted = some_run(2)
    schedule = Schedule.of(stream, inserted)
    allocator = CachingAllocator(RULES)
    assert run(schedule, allocator) == run(schedule, CachingAllocator(RULES))
    assert allocator.allocated_bytes <= allocator.reserved_bytes
