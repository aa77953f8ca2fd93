"""Whether a data loader keeps up with training: its rate at any batch size against the need.

Pure Python. Background workers load while the device computes, so they keep up when they give
samples as fast as training takes them. Without workers the training process loads itself, between
its micro-steps, and every second of loading is a second of waiting.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bsprof.fit.samples import TIE_SHARE
from bsprof.records import LoaderPoint, Quantity


class Verdict(StrEnum):
    """Whether training would wait for data; `unclear` where the intervals overlap."""

    KEEPS_UP = "keeps up"
    UNCLEAR = "too close to tell"
    WAITS = "waits for data"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderRate:
    """Samples per second that a number of workers gives, with the better of its prefetches.

    Attributes:
        measured: Whether at this very batch size, not derived from others.
    """

    num_workers: int
    prefetch_factor: int | None
    samples_per_s: Quantity
    measured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """A loader held against what training takes at one micro-batch size.

    Attributes:
        need: Samples per second that training takes.
        rates: What each number of workers gives, fewest first; at least one.
    """

    need: Quantity
    rates: tuple[LoaderRate, ...]

    @property
    def best(self) -> LoaderRate:
        """The number of workers that training is fastest with; the fewest of equals."""
        return min(self.rates, key=lambda r: (self._fed_s(r), r.num_workers))

    @property
    def verdict(self) -> Verdict:
        """What the best number of workers does; a smaller one may do as well."""
        found = [verdict_on(rate, self.need) for rate in self.rates]
        for verdict in (Verdict.KEEPS_UP, Verdict.UNCLEAR):
            if verdict in found:
                return verdict
        return Verdict.WAITS

    @property
    def fewest(self) -> LoaderRate | None:
        """The fewest measured workers that keep up, beyond doubt; None when none do."""
        return self._first((Verdict.KEEPS_UP,))

    @property
    def perhaps(self) -> LoaderRate | None:
        """Fewer workers than `fewest` that may keep up, too close to tell; None when none may."""
        first = self._first((Verdict.KEEPS_UP, Verdict.UNCLEAR))
        return first if first is not self.fewest else None

    def _fed_s(self, rate: LoaderRate) -> float:
        """Expected seconds per sample of training that is fed like this."""
        training_s, loading_s = 1 / self.need.value, 1 / rate.samples_per_s.value
        return max(training_s, loading_s) if rate.num_workers else training_s + loading_s

    def _first(self, wanted: Sequence[Verdict]) -> LoaderRate | None:
        return next((r for r in self.rates if verdict_on(r, self.need) in wanted), None)


def by_workers(num_workers: int) -> str:
    """`without workers`, `with 1 worker`, `with 4 workers`."""
    if not num_workers:
        return "without workers"
    return f"with {num_workers} worker" + ("" if num_workers == 1 else "s")


def verdict_on(rate: LoaderRate, need: Quantity) -> Verdict:
    """Whether one number of workers keeps up.

    Without workers it does when loading takes at most `TIE_SHARE` of the time of training.
    """
    wanted = need if rate.num_workers else need.scaled(1 / TIE_SHARE)
    if rate.samples_per_s.low >= wanted.high:
        return Verdict.KEEPS_UP
    return Verdict.WAITS if rate.samples_per_s.high < wanted.low else Verdict.UNCLEAR


def supply(points: Iterable[LoaderPoint], batch_size: int, need: Quantity) -> Supply | None:
    """The loader held against training at one micro-batch size; None where nothing was measured.

    Between two measured batch sizes the seconds of a batch are taken to be affine in its size;
    beyond them the rate is that of the nearest.

    Args:
        points: All that was measured of the loader.
        batch_size: Samples in a micro-batch.
        need: Samples per second that training takes at it, above zero.
    """
    rates: dict[int, LoaderRate] = {}
    ordered = sorted(points, key=_setting)
    for (workers, prefetch), group in itertools.groupby(ordered, key=_setting):
        by_size = {p.batch_size: p.samples_per_s for p in group}
        rate = LoaderRate(
            num_workers=workers,
            prefetch_factor=prefetch or None,
            samples_per_s=_rate_at(by_size, batch_size),
            measured=batch_size in by_size,
        )
        known = rates.get(workers)
        # A prefetch measured at this size outweighs one that was measured at others.
        if known is None or _worth(rate) > _worth(known):
            rates[workers] = rate
    if not rates:
        return None
    return Supply(need=need, rates=tuple(rates[n] for n in sorted(rates)))


def _setting(point: LoaderPoint) -> tuple[int, int]:
    return point.num_workers, point.prefetch_factor or 0


def _worth(rate: LoaderRate) -> tuple[bool, float]:
    return rate.measured, rate.samples_per_s.value


def _rate_at(by_size: dict[int, Quantity], size: int) -> Quantity:
    if size in by_size:
        return by_size[size]
    sizes = sorted(by_size)
    right = bisect_left(sizes, size)
    if right in (0, len(sizes)):
        return by_size[sizes[0 if right == 0 else -1]]
    small, large = sizes[right - 1], sizes[right]
    share = (size - small) / (large - small)

    def between(slow: float, fast: float) -> float:
        return size / (small / slow * (1 - share) + large / fast * share)

    a, b = by_size[small], by_size[large]
    return Quantity.ordered(
        between(a.value, b.value), between(a.low, b.low), between(a.high, b.high)
    )
