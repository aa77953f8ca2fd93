"""Replaying recorded allocations on a real heap: exact where the heap is simple."""

import pytest

from bsprof.errors import FitError
from bsprof.measure import heap
from bsprof.measure.heap import HeapTrace, fit_heap, largest_by_heap, like_pair, replay_peaks
from bsprof.measure.heap import trace_of as make_trace

MIB = 2**20
WEIGHTS = (50 * MIB,)


def activation_trace(size, per_sample=4 * MIB, layers=10):
    """A stack of layers: each holds an activation until backward, with a temporary beside it."""
    events, address = [], 0
    held = []
    for _ in range(layers):
        address += 2
        events += [
            (address, size * per_sample),
            (address + 1, 2 * size * per_sample),
            (address + 1, -2 * size * per_sample),
        ]
        held.append(address)
    events += [(a, -size * per_sample) for a in reversed(held)]
    return make_trace(size, WEIGHTS, events)


def test_a_trace_numbers_blocks_in_the_order_of_allocation_and_drops_foreign_frees():
    trace = make_trace(2, (8,), [(7, 100), (9, 50), (7, -100), (5, -30), (7, 60), (9, -50)])
    assert trace.blocks == (0, 1, 0, 2, 1)
    assert trace.changes == (100, 50, -100, 60, -50)


def test_an_address_that_comes_back_without_a_free_was_freed_between_phases():
    trace = make_trace(1, (), [(7, 100), (7, 200)])
    assert trace.blocks == (0, 0, 1)
    assert trace.changes == (100, -1, 200)


def test_the_pair_is_of_one_stream():
    other = HeapTrace(micro_batch_size=64, resident_bytes=WEIGHTS, blocks=(0,), changes=(5,))
    small, large = like_pair([activation_trace(1), other, activation_trace(4), activation_trace(2)])
    assert (small.micro_batch_size, large.micro_batch_size) == (1, 4)
    assert like_pair([activation_trace(1), other]) is None


def test_large_blocks_have_their_own_mappings_so_the_peak_is_their_sum():
    pair = (activation_trace(16), activation_trace(32))
    peaks = replay_peaks(pair, [16, 64, 100])
    for size, peak in peaks.items():
        live = WEIGHTS[0] + size * 4 * MIB * 12
        assert live <= peak <= live * 1.01


def test_the_model_finds_what_torch_does_not_see():
    pair = (activation_trace(16), activation_trace(32))
    sizes = [16, 24, 32]
    grown = replay_peaks(pair, sizes)
    used = {b: 300 * MIB + int(1.05 * grown[b]) for b in sizes}
    model = fit_heap(list(pair), used, 300 * MIB)
    assert model.excess == pytest.approx(0.05, abs=0.002)
    assert model.scatter < 0.001
    predicted = model.used_bytes([128])[128]
    assert predicted == pytest.approx(300 * MIB + 1.05 * replay_peaks(pair, [128])[128], rel=0.01)


def test_the_largest_size_is_inverted_with_a_narrow_interval():
    pair = (activation_trace(16), activation_trace(32))
    grown = replay_peaks(pair, [16, 32])
    model = fit_heap(list(pair), {b: 300 * MIB + g for b, g in grown.items()}, 300 * MIB)
    limit = 8 * 2**30
    true = (limit - 300 * MIB - WEIGHTS[0]) // (4 * MIB * 12)
    largest = largest_by_heap(model, limit, 32)
    assert largest.low <= true <= largest.high
    assert abs(largest.value - true) <= 0.01 * true
    assert largest.relative_width <= 0.10


def test_memory_that_does_not_grow_has_no_largest_size():
    pair = tuple(make_trace(b, WEIGHTS, [(1, 10 * MIB), (1, -10 * MIB)]) for b in (1, 2))
    model = fit_heap(list(pair), {1: 400 * MIB, 2: 400 * MIB}, 300 * MIB)
    assert largest_by_heap(model, 2**31, 2) is None


def test_one_size_is_not_enough():
    with pytest.raises(FitError, match="heap"):
        fit_heap([activation_trace(1)], {1: 2**30}, 0.0)


def test_a_player_that_fails_is_an_error(monkeypatch):
    monkeypatch.setattr(heap, "_player_path", lambda: "/nonexistent/player.py")
    with pytest.raises(FitError, match="replay"):
        replay_peaks((activation_trace(1), activation_trace(2)), [4])


def test_blocks_beyond_this_machine_are_infinitely_large():
    peaks = replay_peaks((activation_trace(1), activation_trace(2)), [1, 2**40])
    assert peaks[1] < 2**30
    assert peaks[2**40] == float("inf")


def test_a_stream_whose_blocks_vanish_at_one_sample_is_played():
    pair = tuple(
        make_trace(b, WEIGHTS, [(1, max(1, (b - 1) * MIB)), (1, -max(1, (b - 1) * MIB))])
        for b in (2, 4)
    )
    assert replay_peaks(pair, [1, 2])[1] >= WEIGHTS[0]


def test_a_heap_that_does_not_grow_at_all_has_no_model():
    pair = tuple(make_trace(b, (), [(1, 64), (1, -64)]) for b in (1, 2))
    with pytest.raises(FitError, match="heap"):
        fit_heap(list(pair), {1: 400 * MIB, 2: 400 * MIB}, 300 * MIB)
