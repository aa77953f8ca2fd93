"""Peaks, verdicts and owners of a made run on made devices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bsprof.predict.allocator import Verdict
from bsprof.predict.memory import MemoryModel, predict_memory
from bsprof.predict.room import Conditions
from bsprof.predict.stream import Operand
from bsprof.predict.terms import End
from bsprof.predict.timeline import timeline_of
from bsprof.records import Category, Phase, Quantity

MIB = 2**20
GIB = 2**30
CUBLAS = 2 * 8_519_680
"""Two blocks on compute capability 8.0: forward and backward."""


def live_bytes(size: int) -> int:
    """Weights, gradients, state and all activations: the second micro-step's peak."""
    return 4 * (20 + 20 + 40 + 2 * size) * MIB + CUBLAS


def test_the_peak_is_what_is_live_together_and_its_owner_is_told(made_run, card):
    found = predict_memory(made_run(8), Conditions(device=card(8 * GIB)))
    assert found.verdict is found.worst is found.best is Verdict.FITS
    assert found.allocated_bytes.value == live_bytes(8)
    assert found.peak_phase is Phase.ACCUMULATION
    assert found.by_category_bytes == {
        Category.WEIGHTS: 80 * MIB,
        Category.GRADIENTS: 80 * MIB,
        Category.OPTIMIZER_STATE: 160 * MIB,
        Category.ACTIVATIONS: 64 * MIB,
        Category.LIBRARIES: CUBLAS,
    }
    names = [name for name, _ in found.top_modules]
    assert names[-1] == "cuBLAS workspace"
    assert set(names[:4]) == {f"layers.{layer}" for layer in range(4)}
    assert found.resident_bytes == 240 * MIB + CUBLAS
    assert found.first_step_allocated_bytes == 4 * (20 + 20 + 40) * MIB + CUBLAS
    assert found.alloc_retries == 0
    assert found.requested_bytes is None


def test_used_is_reserved_and_what_lies_outside_with_intervals_around(made_run, card):
    found = predict_memory(made_run(8), Conditions(device=card(8 * GIB)))
    assert found.device_used_bytes.value == found.reserved_bytes.value + 400 * MIB
    assert found.device_used_bytes.low <= 380 * MIB + found.reserved_bytes.low
    assert found.device_used_bytes.high >= 450 * MIB + found.reserved_bytes.value
    for amount in (found.allocated_bytes, found.reserved_bytes):
        assert amount.low < amount.value < amount.high
    assert {term.name for term in found.terms} == {"CUDA context", "cuBLAS workspace"}


def test_capacity_decides_and_the_refused_request_is_told(made_run, card):
    needed = predict_memory(made_run(8), Conditions(device=card(8 * GIB)))
    used = needed.device_used_bytes.value
    exactly = predict_memory(made_run(8), Conditions(device=card(used)))
    assert exactly.verdict is Verdict.FITS
    assert exactly.worst is not Verdict.FITS
    tight = predict_memory(made_run(8), Conditions(device=card(live_bytes(8) + 200 * MIB)))
    assert tight.verdict is Verdict.OUT_OF_MEMORY
    assert tight.requested_bytes in (16 * MIB, 20 * MIB, 40 * MIB)
    assert tight.device_used_bytes.value == used  # what it would need


def test_what_others_use_and_a_limit_are_not_free(made_run, card):
    free = Conditions(device=card(8 * GIB))
    used = predict_memory(made_run(8), free).device_used_bytes.value
    less = replace(free, other_bytes=round(8 * GIB - used) + 64 * MIB)
    assert predict_memory(made_run(8), less).verdict is not Verdict.FITS
    limited = replace(free, memory_limit_bytes=round(used))
    assert limited.is_limited
    assert predict_memory(made_run(8), limited).verdict is Verdict.FITS
    assert (
        predict_memory(made_run(8), replace(limited, memory_limit_bytes=round(used) - 20 * MIB))
    ).verdict is not Verdict.FITS


def test_a_limit_above_what_there_is_changes_nothing(card):
    given = Conditions(device=card(8 * GIB), memory_limit_bytes=100 * GIB)
    assert given.usable_bytes() == 8 * GIB
    assert not given.is_limited


def test_ends_of_the_capacity_go_against_ends_of_the_need(card):
    spread = card(8 * GIB, capacity_bytes=Quantity(value=8 * GIB, low=7 * GIB, high=9 * GIB))
    given = Conditions(device=spread)
    assert given.usable_bytes(End.HIGH) == 7 * GIB
    assert given.usable_bytes(End.LOW) == 9 * GIB


@pytest.mark.parametrize("capacity_gib", [1.0, 1.3, 2.0, 4.0])
def test_verdicts_are_ordered_and_agree_with_fits(made_run, card, capacity_gib):
    order = [Verdict.FITS, Verdict.FITS_AFTER_FLUSH, Verdict.OUT_OF_MEMORY]
    model = MemoryModel(made_run, Conditions(device=card(capacity_gib * GIB)))
    for size in (1, 10, 40, 70, 100, 300):
        found = model.predict(size)
        ranks = [order.index(v) for v in (found.best, found.verdict, found.worst)]
        assert ranks == sorted(ranks)
        assert model.fits(size) == (found.verdict is Verdict.FITS)
        assert (found.alloc_retries > 0) == (found.verdict is Verdict.FITS_AFTER_FLUSH)


def test_ranks_share_optimizer_state(made_run, card):
    alone = Conditions(device=card(8 * GIB))
    shared = replace(alone, world_size=4, parallel="zero1")
    one = predict_memory(made_run(8), alone)
    four = predict_memory(made_run(8), shared)
    assert four.by_category_bytes[Category.OPTIMIZER_STATE] == 40 * MIB
    assert four.by_category_bytes[Category.WEIGHTS] == 80 * MIB
    assert four.allocated_bytes.value < one.allocated_bytes.value
    assert "NCCL buffers" in {term.name for term in four.terms}


def test_the_timeline_shows_the_update_with_the_peak(made_run, card):
    model = MemoryModel(made_run, Conditions(device=card(8 * GIB)))
    timeline = timeline_of(model.timeline(8), model.stream(8))
    levels = [sum(now) for now in zip(*timeline.bytes_by_category.values(), strict=True)]
    assert max(levels) == levels[timeline.peak] == live_bytes(8)
    assert timeline.positions[0] == 0
    stages = [(stage.phase, stage.micro_step, stage.backward) for stage in timeline.stages]
    assert stages == [
        (Phase.FORWARD_BACKWARD, 0, False),
        (Phase.FORWARD_BACKWARD, 0, True),
        (Phase.ACCUMULATION, 1, False),
        (Phase.ACCUMULATION, 1, True),
        (Phase.OPTIMIZER_STEP, -1, False),
        (None, -1, False),
    ]
    assert [stage.sample for stage in timeline.stages] == sorted(
        stage.sample for stage in timeline.stages
    )


def test_after_a_flush_what_lies_outside_is_not_reserved(made_run, card):
    model = MemoryModel(made_run, Conditions(device=card(1.3 * GIB)))
    flushed = [found for found in map(model.predict, range(1, 120)) if found.alloc_retries]
    assert flushed
    for found in flushed:
        assert found.reserved_bytes.high <= 1.3 * GIB - 400 * MIB
        assert found.device_used_bytes.high <= 1.3 * GIB


def test_a_memory_fraction_is_of_the_whole_device(made_run, card):
    needed = predict_memory(made_run(8), Conditions(device=card(8 * GIB))).replay
    reserved = needed.peak_reserved_bytes
    settings = "per_process_memory_fraction:0.25"
    for spare, fits in ((0, True), (-20 * MIB, False)):
        free = Conditions(device=card(4 * (reserved + spare)))
        limited = replace(free, allocator_conf=settings)
        assert predict_memory(made_run(8), free).verdict is Verdict.FITS
        assert (predict_memory(made_run(8), limited).verdict is Verdict.FITS) == fits


def test_the_reserve_of_recurrent_layers_has_an_interval(made_run, card):
    run = made_run(40)
    recurrent = tuple(
        op
        if op.backward
        else replace(
            op,
            name="aten._cudnn_rnn",
            inputs=(Operand(shape=(8,), dtype="float32"),),
            outputs=(replace(op.outputs[0], dtype="uint8"),),
        )
        for op in run.operators
    )
    given = Conditions(device=card(8 * GIB))
    found = predict_memory(replace(run, operators=recurrent), given)
    reserve = 4 * 40 * 2 * MIB
    peak = found.allocated_bytes
    assert peak.low == pytest.approx(0.99 * (peak.value - 0.2 * reserve))
    assert peak.high == pytest.approx(1.01 * (peak.value + 0.4 * reserve))
    plain = predict_memory(run, given).device_used_bytes
    used = found.device_used_bytes
    assert used.low < plain.low - 0.15 * reserve
    assert used.high > plain.high + 0.35 * reserve

    need = found.device_used_bytes.value
    tight = Conditions(device=card(need + 60 * MIB))
    assert predict_memory(run, tight).worst is Verdict.FITS
    assert predict_memory(replace(run, operators=recurrent), tight).worst is not Verdict.FITS


def test_collecting_garbage_lowers_what_is_reserved(made_run, card):
    fraction = "per_process_memory_fraction:0.99"
    settings = (fraction, f"{fraction},garbage_collection_threshold:0.05")
    plain, collected = (
        predict_memory(made_run(70), Conditions(device=card(8 * GIB), allocator_conf=conf))
        for conf in settings
    )
    assert plain.verdict is collected.verdict is Verdict.FITS
    assert collected.reserved_bytes.value < plain.reserved_bytes.value
