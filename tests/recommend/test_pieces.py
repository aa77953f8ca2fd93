"""Exact pieces by rank."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsprof.recommend import pieces as under_test
from bsprof.recommend.pieces import shares_of_ranks


def expanded(found):
    """Rank by rank, size by size."""
    if found is None:
        return None
    return tuple(kind.expanded() for kind in found for _ in range(kind.ranks))


def pieces_by_rank(*arguments):
    return expanded(under_test.exact_pieces(*arguments))


def equal_pieces(*arguments):
    return expanded(under_test.equal_pieces(*arguments))


def anything(_size: int) -> bool:
    return True


def not_one(size: int) -> bool:
    return size != 1


@pytest.mark.parametrize(
    ("target", "world_size", "micro_batch_size", "expected"),
    [
        (2048, 1, 64, ((64,) * 32,)),
        (50, 1, 64, ((50,),)),
        (100, 1, 64, ((64, 36),)),
        (7, 1, 3, ((3, 3, 1),)),
        (256, 7, 18, ((18, 18, 1),) * 4 + ((18, 17, 1),) * 3),  # DeepSpeed's 2 * 18 * 7 is 252
        (1009, 8, 32, ((32, 32, 32, 31),) + ((32, 32, 32, 30),) * 7),
        (17, 2, 4, ((4, 4, 1), (4, 3, 1))),  # the second rank keeps three pieces for its 8 samples
        (5, 2, 1, ((1, 1, 1), (1, 1))),  # 2 samples cannot be three pieces
        (3, 3, 64, ((1,), (1,), (1,))),
    ],
)
def test_pieces(target, world_size, micro_batch_size, expected):
    assert pieces_by_rank(target, world_size, micro_batch_size, anything) == expected


@pytest.mark.parametrize(
    ("target", "micro_batch_size", "expected"),
    [
        (9, 4, ((4, 3, 2),)),
        (5, 4, ((3, 2),)),
        (65, 64, ((63, 2),)),
        (7, 2, None),  # an odd number has no pieces of two
        (4, 3, ((2, 2),)),
        (1, 4, None),
    ],
)
def test_a_last_piece_of_one_is_avoided(target, micro_batch_size, expected):
    assert pieces_by_rank(target, 1, micro_batch_size, not_one) == expected


def test_a_rank_with_one_sample_less_avoids_it_too():
    assert pieces_by_rank(18, 2, 4, not_one) == ((4, 3, 2), (4, 3, 2))
    assert pieces_by_rank(17, 2, 4, not_one) == ((4, 3, 2), (4, 2, 2))


def test_refused_sizes_are_not_pieces():
    assert pieces_by_rank(20, 1, 8, lambda n: n not in (4, 5)) == ((8, 6, 6),)
    assert pieces_by_rank(10, 1, 8, lambda n: n == 8) is None


@pytest.mark.parametrize(("target", "world_size"), [(3, 4), (0, 1), (4, 0)])
def test_more_ranks_than_samples(target, world_size):
    with pytest.raises(ValueError, match="cannot give each"):
        shares_of_ranks(target, world_size)


def test_a_micro_batch_below_one():
    with pytest.raises(ValueError, match="at least one sample"):
        pieces_by_rank(8, 1, 0, anything)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 5000),
    st.integers(1, 64),
    st.integers(1, 600),
    st.sets(st.integers(1, 600), max_size=8),
)
def test_pieces_sum_to_the_target(target, world_size, micro_batch_size, refused):
    if world_size > target:
        world_size = target

    def allowed(n):
        return n not in refused

    pieces = pieces_by_rank(target, world_size, micro_batch_size, allowed)
    if pieces is None:
        assert refused  # without a refused size there is always an answer
        return
    assert sum(map(sum, pieces)) == target
    assert len(pieces) == world_size
    sums = [sum(rank) for rank in pieces]
    assert max(sums) - min(sums) <= 1
    assert sums == sorted(sums, reverse=True)
    for rank in pieces:
        assert all(1 <= piece <= micro_batch_size for piece in rank)
        assert refused.isdisjoint(set(rank) - {micro_batch_size})
    counts = [len(rank) for rank in pieces]
    assert counts[0] == -(-max(sums) // micro_batch_size)  # never more steps than needed
    assert counts[0] - counts[-1] <= 1
    if not refused and min(sums) >= counts[0] and micro_batch_size > 1:
        assert counts[0] == counts[-1]


@pytest.mark.parametrize(
    ("target", "world_size", "micro_batch_size", "tolerance", "expected"),
    [
        (100, 1, 48, 0.05, ((48, 48),)),
        (100, 1, 48, 0.03, None),
        (100, 2, 26, 0.05, ((26, 26), (26, 26))),
        (6, 1, 4, 0.4, ((4,),)),  # 4 and 8 are equally far: the smaller
        (10, 1, 16, 0.7, ((16,),)),
        (256, 7, 18, 0.02, ((18, 18),) * 7),
    ],
)
def test_equal_pieces(target, world_size, micro_batch_size, tolerance, expected):
    assert equal_pieces(target, world_size, micro_batch_size, tolerance) == expected
