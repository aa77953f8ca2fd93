"""How fast this machine runs at the moment: a fixed small matmul, timed beside every block.

A shared CPU changes speed by tens of percent within a minute (frequency, neighbours), which is
more than the sizes of a flat curve differ by. Measured on two shared cores over 70 s: micro-steps
of a small GPT drifted by 17 % either way, their ratio to this matmul by 4 %. Accelerators have
clocks of their own and need none of this.
"""

from __future__ import annotations

import time

import torch

SIDE = 512
SHARE = 0.08
"""Share of a block's time that one reading takes: short readings beside long blocks are noise."""
FEWEST, MOST = 2, 64


class Pacer:
    """Times a fixed matmul; readings at two moments compare the machine's speed at them."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self._a = torch.randn(SIDE, SIDE, generator=generator)
        self._out = torch.empty_like(self._a)
        self._usual_s = min(self._read(FEWEST) for _ in range(3))

    def reading(self, block_s: float) -> float:
        """Seconds of one matmul now, read beside a block that takes about `block_s`."""
        repeats = round(SHARE * block_s / self._usual_s)
        return self._read(min(MOST, max(FEWEST, repeats)))

    def _read(self, repeats: int) -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            torch.mm(self._a, self._a, out=self._out)
        return (time.perf_counter() - start) / repeats
