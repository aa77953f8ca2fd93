"""Batches of any size out of the user's own samples, by a rule about their lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bsprof.errors import WorkloadError
from bsprof.records import Note
from bsprof.workloads.adapters.lengths import (
    LONGEST,
    chosen,
    parse_lengths,
    sample_length,
    samples_needed,
)
from bsprof.workloads.adapters.samples import Samples, too_few
from bsprof.workloads.adapters.tokens import batch_tokens, loss_tokens
from bsprof.workloads.batches import move
from bsprof.workloads.faults import user_code

EXAMINED = 512
"""Samples read to learn their lengths. Heuristic: the longest of them is beyond the 99th
percentile with a probability of 99 % (1 - 0.99**512), and reading as many images takes seconds."""
ALIKE = 64
"""Samples of one length after which all are taken to be alike. Heuristic: were 5 % of them of
another length, 64 in a row without one would have a probability of 4 % (0.95**64)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which samples make a batch; the fields are those of `Workload.from_batches`."""

    lengths: str = "longest"
    length: Callable[[Any], int] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    count: Callable[[Any], int] | None = None
    examined: int = EXAMINED
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse to look at no sample at all."""
        if self.examined < 1:
            raise WorkloadError(
                f"cannot learn lengths from examined={self.examined} samples",
                next_step="give a number above zero",
            )


class Drawing:
    """Makes batches; reads some samples first where their lengths or tokens matter.

    Attributes:
        count: Tokens that the loss of a batch averages over; None where samples have no tokens.
        size: Samples in the data set; None when unknown.
        tokens_per_sample: The mean over the samples examined; None where they have none.

    Args:
        samples: Where samples come from.
        collate: Makes a batch of a list of samples.
        choice: Which samples.

    Raises:
        WorkloadError: there are no samples, or `choice` cannot be read.
    """

    def __init__(
        self, samples: Samples, collate: Callable[[list[Any]], Any], choice: Choice
    ) -> None:
        self.size = samples.size
        self._samples = samples
        self._collate = collate
        self._choice = choice
        self._percentile = parse_lengths(choice.lengths)
        self._lengths: dict[int, int] = {}
        self._alike = self._saw_all = False
        if not samples.examined(1):
            raise WorkloadError(
                "cannot make batches of an empty data set", next_step="give one with samples"
            )
        alone = self._batch_of_one()
        self.count = choice.count
        if self.count is None and alone is not None and loss_tokens(alone):
            self.count = loss_tokens
        self.tokens_per_sample = self._survey(count_tokens=bool(self.count and alone is not None))

    def batch(self, micro_batch_size: int, device: torch.device) -> Any:
        """A batch of that many samples, collated, and moved to the device.

        Raises:
            WorkloadError: the data set has fewer samples.
        """
        return move(self.collated(micro_batch_size), device)

    def collated(self, micro_batch_size: int) -> Any:
        """The same, where the collate function left it."""
        if self._percentile is None:
            return self._collate(self._samples.draw(micro_batch_size))
        keys = self._keys(micro_batch_size, self._percentile)
        return self._collate(self._samples.read(keys))

    def notes(self) -> tuple[Note, ...]:
        """What the reader of a profile must know of its batches."""
        return (*self._on_lengths(), *self._on_tokens())

    def _on_tokens(self) -> tuple[Note, ...]:
        if self._percentile is None or self._alike or self.tokens_per_sample is None:
            return ()
        return (
            Note(
                code="tokens-at-the-mean",
                message=f"a sample counts as {self.tokens_per_sample:,} tokens, the mean of those "
                f"examined, but times are of batches by length ({self._choice.lengths}): tokens "
                "per second in training differ",
                hint="lengths='histogram' times batches as they come",
            ),
        )

    def _on_lengths(self) -> tuple[Note, ...]:
        if self._percentile is None:
            return (
                Note(
                    code="batches-as-drawn",
                    message="the batches of each size were drawn at random from the data set: a "
                    "longer one takes more memory than was measured",
                    hint="measure with lengths='longest' for a size that every batch fits",
                ),
            )
        if self._saw_all and (self._alike or self._percentile == LONGEST):
            return ()
        hold = "the longest samples"
        if self._percentile != LONGEST:
            hold = f"samples up to the length at {self._choice.lengths}"
        size = "the data set" if self.size is None else f"{self.size:,}"
        return (
            Note(
                code="batches-by-length",
                message=f"the batches hold {hold} among {len(self._lengths):,} examined of {size} "
                f"({self._range()}): longer ones take more memory and time",
                hint="lengths='longest' with a larger examined= sees more of them",
            ),
        )

    def _range(self) -> str:
        """Lengths seen, in words."""
        low, high = min(self._lengths.values()), max(self._lengths.values())
        if low < high:
            return f"{low:,} to {high:,} elements"
        return f"all of {high:,} elements" if high else "their lengths are unknown"

    def _keys(self, size: int, percentile: float) -> Sequence[int]:
        """Keys of the samples of a batch."""
        wanted = size if self._alike else samples_needed(percentile, size)
        keys = self._samples.examined(max(wanted, self._choice.examined))
        if size > len(keys):
            raise too_few(size, len(keys))
        if self._alike:
            return keys[:size]
        places = chosen([self._length(key) for key in keys], percentile, size)
        return [keys[place] for place in places]

    def _length(self, key: int) -> int:
        if key not in self._lengths:
            (sample,) = self._samples.read([key])
            self._lengths[key] = self._measured(sample)
        return self._lengths[key]

    def _measured(self, sample: Any) -> int:
        if self._choice.length is not None:
            with user_code("`length` cannot read a sample"):
                return int(self._choice.length(sample))
        return sample_length(sample) or 0

    def _batch_of_one(self) -> Any:
        """One sample, collated; None where that cannot be done."""
        try:
            with user_code("cannot make a batch of one sample"):
                return self._collate(self._samples.read(self._samples.examined(1)))
        except WorkloadError:
            return None  # told where a size is measured, if it fails there too

    def _survey(self, *, count_tokens: bool) -> int | None:
        """Learn the lengths of the samples to examine; the mean tokens of one."""
        if self._percentile is None and not count_tokens:
            return None
        tokens: list[int] = []
        keys = self._samples.examined(self._choice.examined)
        for key in keys:
            (sample,) = self._samples.read([key])
            self._lengths[key] = self._measured(sample)
            if count_tokens:
                tokens.append(self._tokens_of(sample))
            self._alike = len(set(self._lengths.values())) == 1
            seen_enough = self._samples.shuffled and len(self._lengths) == ALIKE
            if seen_enough and self._alike and len(set(tokens)) <= 1:
                break
        read = len(self._lengths)
        self._saw_all = read == self.size or read == len(keys) < self._choice.examined
        mean = round(sum(tokens) / len(tokens)) if tokens else 0
        return mean if mean > 1 else None

    def _tokens_of(self, sample: Any) -> int:
        """Tokens that the model sees in a sample, by the user's count if there is one."""
        batch = self._collate([sample])
        if self._choice.count is None:
            return batch_tokens(batch) or loss_tokens(batch)
        with user_code("`count` cannot read a batch"):
            return int(self._choice.count(batch))
