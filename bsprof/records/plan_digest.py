"""A short name for what a plan runs, so that settings and checkpoints can say which one it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from bsprof.records.plan import RankPieces

DIGEST_DIGITS = 16
"""Hex digits: 64 bits, as for the digests of a workload."""


def plan_digest(pieces: tuple[RankPieces, ...]) -> str:
    """Digest (hex, 16 digits) of what every rank runs, in order.

    Two plans with the same digest give the same gradient; times, memory and reasons have no part
    in it. How ranks or pieces are grouped has none either.
    """
    kinds: list[tuple[int, list[tuple[int, int]]]] = []
    for kind in pieces:
        runs = _merged((run.size, run.count) for run in kind.runs)
        ranks = kind.ranks
        if kinds and kinds[-1][1] == runs:
            ranks += kinds.pop()[0]
        kinds.append((ranks, runs))
    text = json.dumps(kinds, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]


def _merged(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs of (size, count), neighbours of one size together."""
    merged: list[tuple[int, int]] = []
    for size, count in runs:
        if merged and merged[-1][0] == size:
            count += merged.pop()[1]
        merged.append((size, count))
    return merged
