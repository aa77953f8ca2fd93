"""Ranks on different devices: shares by speed or the minimum for all, exact either way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recommend_profiles import MIB, affine, curve_profile, predicted_profile

from bsprof.errors import BsprofError, UsageError
from bsprof.recommend.document import recommendation_document
from bsprof.recommend.mixed import recommend_mixed

SIZES = (1, 2, 4, 8, 16, 32)


def fast(**more):
    return curve_profile(SIZES, affine(0.01, 0.001), **more)


def slow(sizes=SIZES, **more):
    return curve_profile(sizes, affine(0.02, 0.003), **more)


def test_shares_follow_the_speed():
    answer = recommend_mixed([("fast", fast()), ("slow", slow())], (2, 2), target_batch=512)
    shares = [sum(rank) for rank in answer.plan.pieces_by_rank]
    assert sum(shares) == 512
    assert shares[0] > 2 * shares[2]
    assert "Shares by speed" in answer.reasons[0]
    assert "slowest device sets the pace" in answer.reasons[0]
    assert answer.profile == "fast + slow"


def test_like_devices_run_the_same_pieces():
    answer = recommend_mixed([("a", fast()), ("b", fast())], (1, 1), target_batch=64)
    assert answer.plan.pieces_by_rank == ((32,), (32,))
    assert answer.reasons[0].startswith("All ranks run the same pieces")


def test_the_smaller_device_sets_the_micro_batch_of_equal_pieces():
    small = curve_profile(SIZES[:3], affine(0.01, 0.001), failed=(8,))
    answer = recommend_mixed([("large", fast()), ("small", small)], (1, 1), target_batch=8)
    sizes = answer.plan.pieces_by_rank
    assert sum(map(sum, sizes)) == 8
    assert max(sizes[1]) <= 4


def test_memory_of_each_is_respected():
    tight = fast(bytes_per_sample=150 * MIB)
    answer = recommend_mixed([("wide", fast()), ("tight", tight)], (1, 1), target_batch=200)
    assert max(answer.plan.pieces_by_rank[1]) <= 16
    assert max(answer.plan.pieces_by_rank[0]) == 32


@given(target=st.integers(7, 1500), ranks=st.tuples(st.integers(1, 4), st.integers(1, 3)))
def test_always_exact(target, ranks):
    answer = recommend_mixed([("fast", fast()), ("slow", slow())], ranks, target_batch=target)
    by_rank = answer.plan.pieces_by_rank
    assert sum(map(sum, by_rank)) == target == answer.plan.effective_batch_size
    assert len(by_rank) == sum(ranks)
    assert all(by_rank)
    document = recommendation_document(answer)
    assert document["world_size"] == sum(ranks)


@pytest.mark.parametrize("ranks", [(1,), (0, 2), (1, 1, 1)])
def test_ranks_that_do_not_match_are_refused(ranks):
    with pytest.raises(UsageError, match="number of ranks"):
        recommend_mixed([("fast", fast()), ("slow", slow())], ranks, target_batch=64)


def test_a_target_below_the_ranks_and_untimed_profiles_are_refused():
    with pytest.raises(UsageError, match=r"use at most 3 ranks|cannot be shared"):
        recommend_mixed([("fast", fast()), ("slow", slow())], (2, 2), target_batch=3)
    with pytest.raises(BsprofError):
        recommend_mixed([("a", fast()), ("b", predicted_profile())], (1, 1), target_batch=64)
