"""What the C library takes from the system in an update, asked of it by playing allocations."""

from __future__ import annotations

import sys

import pytest

from bsprof.predict import pages
from bsprof.predict.pages import Fresh, fresh_bytes
from bsprof.predict.stream import Mark, Operand, Operator, Stream
from bsprof.records import Category, Phase

MIB = 2**20

needs_glibc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks glibc")


def operator(name: str, kind: str, flops: int, position: int, **changes) -> Operator:
    attributes = {"operator_class": kind, "flops": flops, **changes.pop("attributes", {})}
    values = {"inputs": (), "outputs": (), "backward": False} | changes
    return Operator(
        position=position,
        name=name,
        module=0,
        phase=Phase.FORWARD_BACKWARD,
        attributes=attributes,
        **values,
    )


def run(size: int, kind: str = "elementwise", *, operators=()) -> Stream:
    """Three updates: ten blocks of `size` live together, are freed, and a step has two of them."""
    sizes: list[int] = []
    events: list[int] = []
    marks: list[Mark] = []

    def allocate(amount: int) -> int:
        sizes.append(amount)
        events.append(len(sizes))
        return len(sizes)

    def mark(update: int, micro_step: int, phase: Phase | None) -> None:
        position = len(events)
        marks.append(Mark(position=position, update=update, micro_step=micro_step, phase=phase))

    mark(-1, -1, None)
    allocate(MIB)
    for update in range(3):
        mark(update, 0, Phase.FORWARD_BACKWARD)
        blocks = [allocate(size) for _ in range(10)]
        events += [-block for block in reversed(blocks)]
        mark(update, -1, Phase.OPTIMIZER_STEP)
        blocks = [allocate(size) for _ in range(2)]
        events += [-block for block in reversed(blocks)]
        mark(update, -1, None)
    made = operators or (operator(f"aten.{kind}", kind, 10, marks[-3].position),)
    return Stream(
        micro_batch_size=1,
        sizes=tuple(sizes),
        categories=(Category.TEMPORARIES,) * len(sizes),
        modules=(0,) * len(sizes),
        module_names=("",),
        streams=(0,) * len(sizes),
        events=tuple(events),
        marks=tuple(marks),
        operators=made,
    )


@needs_glibc
def test_small_blocks_are_kept_and_come_back():
    assert fresh_bytes(run(64 * 1024)).micro_step <= MIB


@needs_glibc
def test_the_top_of_the_heap_is_given_back_and_taken_anew():
    fresh = fresh_bytes(run(8 * MIB)).micro_step
    assert 40 * MIB < fresh <= 90 * MIB


def test_large_blocks_are_mapped_apart_each_time():
    fresh = fresh_bytes(run(40 * MIB))
    assert fresh.micro_step == pytest.approx(400 * MIB, rel=0.01)
    assert fresh.optimizer == pytest.approx(80 * MIB, rel=0.01)


def test_matrix_products_hold_the_top_in_place():
    assert fresh_bytes(run(8 * MIB, "matmul")) == Fresh()
    assert fresh_bytes(run(40 * MIB, "matmul")).micro_step == 400 * MIB


@needs_glibc
def test_a_convolution_copies_what_it_reads_and_writes():
    image = Operand(shape=(8, 64, 64, 64), dtype="float32", block=0)
    weight = Operand(shape=(64, 64, 3, 3), dtype="float32", block=0)
    marks = run(4096).marks
    convolution = operator(
        "aten.convolution",
        "convolution",
        10,
        marks[-3].position,
        inputs=(image, weight),
        outputs=(image,),
        attributes={"stride": "1,1", "padding": "1,1", "groups": 1, "transposed": False},
    )
    plain = fresh_bytes(run(4096)).micro_step
    copied = fresh_bytes(run(4096, operators=(convolution,))).micro_step
    assert copied - plain >= 2 * image.bytes - MIB


def test_without_an_answer_only_mapped_blocks_count(monkeypatch):
    monkeypatch.setattr(pages, "find_spec", lambda _name: _Missing)
    assert fresh_bytes(run(8 * MIB)) == Fresh()
    assert fresh_bytes(run(40 * MIB)).micro_step == 400 * MIB


class _Missing:
    origin = "/nowhere/player.py"


def test_a_run_without_an_update_takes_nothing():
    empty = run(4096)
    stream = Stream(**{n: getattr(empty, n) for n in Stream.__slots__} | {"marks": ()})
    assert fresh_bytes(stream) == Fresh()
