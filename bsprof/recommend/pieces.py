"""Splits a target into the pieces that each rank runs, exactly. Pure arithmetic.

A rank's share is cut into full micro-batches and one smaller last piece. That keeps nearly all
of the work at the one size that was measured; pieces of equal size are the special case without
a last piece. Pieces are kept as runs of one size: a target of millions of samples has millions
of pieces, and few different ones.
"""

from __future__ import annotations

from collections.abc import Callable

from bsprof.records import PieceRun, RankPieces

Runs = tuple[PieceRun, ...]


def shares_of_ranks(target: int, world_size: int) -> tuple[tuple[int, int], ...]:
    """Samples of a rank and how many ranks have so many, larger shares first.

    They sum to `target` and differ by one at most.

    Raises:
        ValueError: fewer samples than ranks, or fewer than one rank.
    """
    if world_size < 1 or target < world_size:
        raise ValueError(f"{target} samples cannot give each of {world_size} ranks at least one")
    share, left = divmod(target, world_size)
    shares = ((share + 1, left), (share, world_size - left))
    return shares if left else shares[1:]


def exact_pieces(
    target: int, world_size: int, micro_batch_size: int, allowed: Callable[[int], bool]
) -> tuple[RankPieces, ...] | None:
    """What the ranks run, those with the larger share first; they sum to `target` over all ranks.

    Every rank runs the same number of pieces, where its share has enough samples for that: with
    fewer pieces a rank would wait for the others at each synchronisation. No piece is above
    `micro_batch_size` and none is a size that `allowed` refuses (a size that failed, one sample
    under batch normalisation); samples then move from a full piece to the last one.

    Args:
        target: Samples per update over all ranks.
        world_size: Data-parallel ranks.
        micro_batch_size: Largest piece; itself allowed.
        allowed: Whether a piece of that many samples may be run.

    Returns:
        None when no such split exists.

    Raises:
        ValueError: as `shares_of_ranks`, or a micro-batch below one.
    """
    if micro_batch_size < 1:
        raise ValueError(f"a micro-batch has at least one sample, not {micro_batch_size}")
    shares = shares_of_ranks(target, world_size)
    steps = -(-shares[0][0] // micro_batch_size)
    found = []
    for share, ranks in shares:
        runs = _runs_of_share(share, steps, micro_batch_size, allowed)
        if runs is None:
            return None
        found.append(RankPieces(ranks=ranks, runs=runs))
    return tuple(found)


def equal_pieces(
    target: int, world_size: int, micro_batch_size: int, tolerance: float
) -> tuple[RankPieces, ...] | None:
    """Pieces of one size whose sum comes nearest to `target`, if within `tolerance` of it.

    A tie goes to the smaller sum, so that the update is never above what was asked without need.

    Args:
        tolerance: Largest deviation over the target, 0 to 1.
    """
    step = micro_batch_size * world_size
    below = target // step
    steps = min((max(below, 1), below + 1), key=lambda k: (abs(k * step - target), k))
    if abs(steps * step - target) > tolerance * target:
        return None
    return (RankPieces(ranks=world_size, runs=_runs((micro_batch_size, steps))),)


def _runs(*runs: tuple[int, int]) -> Runs:
    """Runs from (size, count), without empty ones, neighbours of one size together."""
    found: list[PieceRun] = []
    for size, count in runs:
        if found and found[-1].size == size:
            count += found.pop().count
        if count:
            found.append(PieceRun(size=size, count=count))
    return tuple(found)


def _runs_of_share(
    share: int, steps: int, micro_batch_size: int, allowed: Callable[[int], bool]
) -> Runs | None:
    """One rank's pieces; `steps` of them unless its share is too small for that."""
    full = steps - 1
    rest = share - full * micro_batch_size
    if rest >= 1 and allowed(rest):
        return _runs((micro_batch_size, full), (rest, 1))
    if full == 0:
        return None
    for moved in range(1, (micro_batch_size - rest) // 2 + 1):
        larger, smaller = micro_batch_size - moved, rest + moved
        if allowed(larger) and allowed(smaller):
            return _runs((micro_batch_size, full - 1), (larger, 1), (smaller, 1))
    if rest == 0:  # one sample less than the other ranks, and that sample was their last piece
        return _runs((micro_batch_size, full))
    return None
