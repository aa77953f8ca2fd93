"""Replays without a limit, kept: variants and devices that insert the same share them."""

from __future__ import annotations

from bsprof.predict.allocator import AllocatorRules, Replay, replay
from bsprof.predict.stream import Insertion, Stream

Insertions = tuple[Insertion, ...]


class Replays:
    """Keeps what one workload's runs need where there is no limit.

    Args:
        rules: Of the allocator.
    """

    def __init__(self, rules: AllocatorRules) -> None:
        self.rules = rules
        self._kept: dict[tuple[int, int, Insertions], Replay] = {}

    def unlimited(self, stream: Stream, insertions: Insertions) -> Replay:
        """What the run needs where there is no limit.

        Args:
            stream: Of the workload; its size and its bytes tell it from the others.
            insertions: Of libraries and communication.
        """
        key = (stream.micro_batch_size, sum(stream.sizes), insertions)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = replay(stream, insertions, self.rules, None)
        return kept
