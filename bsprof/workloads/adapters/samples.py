"""Samples of the user's data set, read one by one: by position, or from a stream."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from bsprof.errors import WorkloadError


class Samples(Protocol):
    """Where samples come from.

    Attributes:
        size: Samples in the data set; None when unknown.
        shuffled: Whether what is examined comes in random order: then the first say what the
            others are like.
    """

    size: int | None
    shuffled: bool

    def examined(self, wanted: int) -> Sequence[int]:
        """Keys of that many samples (of all, if there are fewer), for `read`.

        The keys of fewer samples are the first of those of more, short of all of them.
        """
        ...

    def read(self, keys: Sequence[int]) -> list[Any]:
        """The samples of these keys."""
        ...

    def draw(self, count: int) -> list[Any]:
        """Samples as they come: at random, or the next of a stream.

        Raises:
            WorkloadError: the data set has fewer.
        """
        ...


class IndexedSamples:
    """A data set that is read by position.

    Args:
        dataset: Has `__getitem__`, perhaps `__getitems__` for several at once.
        positions: Those that belong to it.
        seed: Of what is drawn and of what is examined.
    """

    def __init__(self, dataset: Any, positions: Sequence[int], seed: int) -> None:
        self.size: int | None = len(positions)
        self.shuffled = True
        self._dataset = dataset
        self._positions = positions
        self._examining, self._drawing = random.Random(seed), random.Random(seed)
        self._order: dict[int, None] = {}
        self._all: list[int] = []
        self._seed = seed

    def examined(self, wanted: int) -> Sequence[int]:
        """Keys at random, each once; all of them, shuffled, where that is more than half."""
        count = len(self._positions)
        if 2 * wanted > count:
            self._all = self._all or random.Random(self._seed).sample(range(count), count)
            return self._all
        while len(self._order) < wanted:
            self._order.setdefault(self._examining.randrange(count))
        return list(self._order)[:wanted]

    def read(self, keys: Sequence[int]) -> list[Any]:
        """The samples at these places among the positions."""
        positions = [self._positions[key] for key in keys]
        several = getattr(self._dataset, "__getitems__", None)
        if several is not None:
            return list(several(positions))
        return [self._dataset[position] for position in positions]

    def draw(self, count: int) -> list[Any]:
        """Samples at random, each once."""
        available = len(self._positions)
        if count > available:
            raise too_few(count, available)
        return self.read(self._drawing.sample(range(available), count))


class StreamedSamples:
    """A data set that can only be read from its start; what was examined is kept.

    Args:
        stream: Gives samples, each time it is iterated.
    """

    def __init__(self, stream: Iterable[Any]) -> None:
        self.size = _length(stream)
        self.shuffled = False
        self._stream = stream
        self._examining: Iterator[Any] | None = None
        self._drawing: Iterator[Any] = iter(())
        self._kept: list[Any] = []

    def examined(self, wanted: int) -> Sequence[int]:
        """Keys of the first samples, fewer where the stream ends."""
        if self._examining is None:
            self._examining = iter(self._stream)
        missing = max(0, wanted - len(self._kept))
        self._kept += itertools.islice(self._examining, missing)
        return range(min(wanted, len(self._kept)))

    def read(self, keys: Sequence[int]) -> list[Any]:
        """Samples among those examined."""
        return [self._kept[key] for key in keys]

    def draw(self, count: int) -> list[Any]:
        """The next samples; from the start again where fewer than a batch are left."""
        drawn = list(itertools.islice(self._drawing, count))
        if len(drawn) < count:
            self._drawing = iter(self._stream)
            drawn = list(itertools.islice(self._drawing, count))
        if len(drawn) < count:
            raise too_few(count, len(drawn))
        return drawn


def too_few(wanted: int, available: int) -> WorkloadError:
    """The error for a batch that is larger than its data set."""
    return WorkloadError(
        f"cannot make a batch of {wanted} samples",
        found=f"the data set has {available}",
        next_step="give a larger data set, or cap the sizes with --max-micro-batch-size",
    )


def _length(stream: Iterable[Any]) -> int | None:
    """Samples that a stream says it has; None where it does not know."""
    try:
        return len(stream)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return None
