"""Stochastic depth: residual branches left out at random in training."""

from __future__ import annotations

from torch import Tensor, nn


class StochasticDepth(nn.Module):
    """Drops the whole branch of a sample, (b, ...) to (b, ...).

    Huang et al. 2016, arXiv 1603.09382, in the form of later code: each sample draws for itself,
    and those kept are scaled up so that the mean stays. In evaluation nothing changes. The branch
    is computed all the same, so no time is saved, and the host waits for no draw.

    Args:
        rate: Probability that a sample is dropped, from 0 up to but not 1.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """The branch, zero for the samples that are dropped."""
        if not self.training or self.rate == 0.0:
            return x
        kept = 1.0 - self.rate
        draws = x.new_empty((x.shape[0],) + (1,) * (x.dim() - 1)).bernoulli_(kept)
        return x * draws.div_(kept)


def rising_rates(last: float, blocks: int) -> list[float]:
    """The rate of each block: from 0 at the first, in equal steps, to `last` at the last."""
    return [last * number / max(blocks - 1, 1) for number in range(blocks)]
