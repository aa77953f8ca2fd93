"""How fast the user's own data loader is."""

from __future__ import annotations

from dataclasses import dataclass

from bsprof.records.quantity import Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderPoint:
    """What the user's loader gives at one setting, measured alone: nothing was trained meanwhile.

    Attributes:
        batch_size: Samples in a batch, as most batches came.
        num_workers: Processes that load in the background; 0 loads in the training process itself.
        prefetch_factor: Batches that each of them loads ahead; None without workers.
        samples_per_s: Samples per second once the first batches were through.
        first_batch_s: Seconds from the start of an epoch to its first batch, the start of the
            workers included.
    """

    batch_size: int
    num_workers: int
    prefetch_factor: int | None = None
    samples_per_s: Quantity
    first_batch_s: float
