"""What operators find outside of a cache, by how long ago it was touched."""

from __future__ import annotations

import pytest

from bsprof.accounting.work import Work, WorkClass
from bsprof.predict.cost import steady_costs
from bsprof.predict.cost.caches import beyond, cold_bytes, footprint_bytes, shared
from bsprof.predict.stream import Operand, Operator, Stream
from bsprof.predict.target import Semantics, TraceTarget
from bsprof.predict.trace.run import trace_stream
from bsprof.records import Category, Precision, WorkloadSpec

MIB = 2**20


def operand(block: int, size: int = MIB) -> Operand:
    return Operand(shape=(size // 4,), dtype="float32", block=block)


def operator(position: int, *blocks: int, size: int = MIB) -> Operator:
    return Operator(
        position=position,
        name="aten.relu_",
        module=0,
        phase=None,
        backward=False,
        inputs=tuple(operand(block, size) for block in blocks),
        outputs=(),
    )


def stream(events: list[int], operators: list[Operator], size: int = MIB) -> Stream:
    count = max(map(abs, events))
    return Stream(
        micro_batch_size=1,
        sizes=(size,) * count,
        categories=(Category.TEMPORARIES,) * count,
        modules=(0,) * count,
        module_names=("",),
        streams=(0,) * count,
        events=tuple(events),
        marks=(),
        operators=operators,
    )


def cold(events, operators, cache, size=MIB):
    found = cold_bytes(stream(events, operators, size), cache)
    return [found.get(id(o), 0) / MIB for o in operators]


def test_a_share_is_lost_once_more_was_touched_than_fits():
    assert beyond(3 * MIB, 4 * MIB) == 0
    assert beyond(8 * MIB, 4 * MIB) == 0.5
    assert beyond(float("inf"), 4 * MIB) == 1
    assert beyond(0, 4 * MIB) == 0


def test_the_first_touch_is_cold_and_the_next_is_not():
    ops = [operator(1, 0), operator(1, 0)]
    assert cold([1], ops, 4 * MIB) == [1, 0]


def test_what_was_touched_between_pushes_out():
    ops = [operator(8, 0), *(operator(8, n) for n in range(1, 8)), operator(8, 0), operator(8, 0)]
    assert cold(list(range(1, 9)), ops, 4 * MIB)[-2:] == [0.5, 0]


def test_a_new_block_takes_the_place_of_one_just_freed():
    ops = [operator(1, 0), operator(3, 1), operator(4, 2)]
    assert cold([1, -1, 2, 3], ops, 4 * MIB) == [1, 0, 1]


def test_a_much_smaller_block_does_not():
    ops = [operator(1, 0)]
    sizes = stream([1, -1, 2], ops)
    smaller = Stream(
        **{n: getattr(sizes, n) for n in Stream.__slots__} | {"sizes": (MIB, MIB // 8)}
    )
    late = operator(3, 1, size=MIB // 8)
    smaller = Stream(
        **{n: getattr(smaller, n) for n in Stream.__slots__} | {"operators": [*ops, late]}
    )
    assert cold_bytes(smaller, 4 * MIB)[id(late)] == MIB // 8


def test_small_blocks_are_not_followed():
    ops = [operator(1, 0, size=1024)]
    assert cold([1], ops, 4 * MIB, size=1024) == [0]


def test_a_footprint_counts_each_storage_once():
    assert footprint_bytes([operator(0, 0, 1, 1), operator(0, 1, 2)]) == 3 * MIB


def test_works_of_one_operator_share_by_their_bytes():
    works = tuple(
        Work(work_class=WorkClass.COPY, compute="fp32", bytes=size) for size in (100, 300)
    )
    assert [w.memory_bytes for w in shared(works, 1000.0)] == [250, 750]
    nothing = (Work(work_class=WorkClass.COPY, compute="fp32"),)
    assert shared(nothing, 1000.0) == nothing


@pytest.fixture(scope="module")
def mlp():
    spec = WorkloadSpec(model="mlp")
    return trace_stream(spec, 16, TraceTarget(semantics=Semantics.CPU)).stream


def test_a_model_that_fits_into_the_cache_fetches_little(mlp):
    def fetched(cache_bytes: float) -> float:
        costs = steady_costs(mlp, None, Precision.FP32, cache_bytes=cache_bytes)
        parts = (*costs.forward, *costs.backward, *costs.optimizer)
        return sum(work.memory_bytes * count for work, count in parts)

    small, large, huge = (fetched(size * MIB) for size in (2, 16, 256))
    weights = 4 * 932_362
    assert small > 4 * weights  # weights forward and backward, gradients, state
    assert small > large > huge
    assert huge < weights / 2  # memory that is touched for the first time


def test_nothing_else_of_the_costs_changes(mlp):
    plain = steady_costs(mlp, None, Precision.FP32)
    cached = steady_costs(mlp, None, Precision.FP32, cache_bytes=2.0 * MIB)
    for name in ("model_flops", "bytes_moved", "calls", "launches"):
        assert getattr(cached, name) == getattr(plain, name)
    assert cached.accumulation == plain.accumulation
