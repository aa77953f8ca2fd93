"""Times a data loader: samples per second once it runs, and the wait for its first batch.

Worker side. Batches are taken as fast as they come. The first is apart, for it waits for the
loader's workers to start; the ones that were begun together with it are the warm-up. Where the
loader runs out, its next epoch begins: what that costs is part of the rate, as it is in training.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bsprof.errors import MeasurementError, WorkloadError
from bsprof.fit.samples import LEVEL, SINGLE_SAMPLE_SHARE
from bsprof.fit.student import t_quantile
from bsprof.measure.classify import classify_exception
from bsprof.measure.raw import LoaderTiming
from bsprof.records import PointStatus, Quantity, per_second
from bsprof.workloads.batches import tensors_in
from bsprof.workloads.faults import user_code

WARMUP_S = 1.0
"""Limit on the warm-up: a slow loader begins no second round within it."""
PATIENCE = 4
"""A loader whose workers have not each given a batch yet gets this many times the seconds."""
BLOCKS = 12
"""Blocks of batches whose scatter gives the rate's interval; more would be as long as a batch."""
_FRAME = re.compile(r'File "(.+)", line (\d+)')


def time_loader(
    loader: Any, *, batch_size: int | None, on_batch: Callable[[], None], seconds: float
) -> LoaderTiming:
    """Take batches for so many seconds.

    Args:
        loader: A torch `DataLoader`.
        batch_size: Samples that a batch should have; None where the loader decides.
        on_batch: Called before each batch (the worker's heartbeat).
        seconds: Of timed batches; at least one batch of each worker is waited for, within
            `PATIENCE` times as long.

    Raises:
        WorkloadError: the loader yields nothing, or nothing a second time.
        Exception: whatever the user's code raises.
    """
    start = time.perf_counter()
    stream = _Stream(loader, on_batch)
    first = stream.take()
    if first is None:
        raise WorkloadError(
            "the loader yields no batch",
            found=_extent(loader),
            next_step="check the data set, and drop_last where it is smaller than a batch",
        )
    first_batch_s = time.perf_counter() - start
    workers = max(1, loader.num_workers)
    stream.warm_up(loader.num_workers * (loader.prefetch_factor or 0))
    begun, restarts = time.perf_counter(), stream.restarts
    ends: list[float] = []
    counts: list[int] = []
    while True:
        spent = time.perf_counter() - begun
        if counts and spent >= seconds and (len(counts) >= workers or spent >= PATIENCE * seconds):
            break
        batch = stream.take()
        if batch is None:
            break
        ends.append(time.perf_counter() - begun)
        counts.append(samples_in(batch, batch_size))
    if not counts:
        raise WorkloadError(
            "the loader yields nothing in its second epoch",
            found=f"{stream.epoch_batches} batches in the first",
            next_step="return a loader that begins anew with every epoch",
        )
    return LoaderTiming(
        batch_size=Counter(counts).most_common(1)[0][0],
        samples_per_s=rate(ends, counts, workers),
        first_batch_s=first_batch_s,
        restarts=stream.restarts - restarts,
        epoch_batches=stream.epoch_batches,
    )


class _Stream:
    """Batches of epoch after epoch.

    Attributes:
        restarts: Epochs begun after the first.
        epoch_batches: Batches of the first epoch, once it ended.
    """

    def __init__(self, loader: Any, on_batch: Callable[[], None]) -> None:
        self._loader, self._on_batch = loader, on_batch
        on_batch()
        self._iterator = iter(loader)
        self._taken = 0
        self.restarts = 0
        self.epoch_batches: int | None = None

    def take(self) -> Any:
        """The next batch; None when a whole epoch yields none."""
        for _ in range(2):
            self._on_batch()
            for batch in self._iterator:
                self._taken += 1
                return batch
            if self.epoch_batches is None:
                self.epoch_batches = self._taken
            if not self.epoch_batches:
                return None
            self.restarts += 1
            self._iterator = iter(self._loader)
        return None

    def warm_up(self, batches: int) -> None:
        """Throw away what was begun together with the first batch."""
        start = time.perf_counter()
        for _ in range(batches - 1):
            if time.perf_counter() - start >= WARMUP_S or self.take() is None:
                break


def rate(ends: Sequence[float], counts: Sequence[int], workers: int) -> Quantity:
    """Samples per second of batches that ended at those seconds, with its 90 % interval.

    Workers give their batches in turn, so blocks are whole rounds. The rate is a mean, not a
    median: a loader that stalls now and then is as slow as the stalls make it.

    Args:
        ends: Seconds from the start to the end of each batch, increasing.
        counts: Samples of each.
        workers: Batches of a round.
    """
    rounds = len(counts) // workers
    length = workers * max(1, rounds // BLOCKS) if rounds else len(counts)
    blocks, before = [], 0.0
    for stop in range(length, len(counts) + 1, length):
        blocks.append((ends[stop - 1] - before) / max(1, sum(counts[stop - length : stop])))
        before = ends[stop - 1]
    mean = statistics.fmean(blocks)
    if len(blocks) == 1:
        margin = mean * SINGLE_SAMPLE_SHARE
    else:
        deviation = statistics.stdev(blocks) / math.sqrt(len(blocks))
        margin = t_quantile(0.5 + LEVEL / 2, len(blocks) - 1) * deviation
    return per_second(1.0, Quantity.ordered(mean, max(0.0, mean - margin), mean + margin))


def samples_in(batch: Any, wanted: int | None) -> int:
    """Samples in a batch, read from the leading dimension of its tensors.

    Args:
        batch: Whatever the loader gave.
        wanted: Samples it should have: believed where a tensor has as many, and where no tensor
            says less (sequence first, graphs); None where nobody knows.
    """
    leading = [t.shape[0] for t in tensors_in(batch) if t.dim() > 0]
    if wanted is None:
        return leading[0] if leading else 1
    if wanted in leading or not leading or not 0 < leading[0] < wanted:
        return wanted
    return leading[0]


@contextmanager
def loader_code(doing: str, folder: Path) -> Iterator[None]:
    """Turn what a loader raises inside the block into an error that says what to do.

    Args:
        doing: What could not be done.
        folder: Where the user's code lies: a place in it is named, also when the error arose in
            one of the loader's own processes.

    Raises:
        MeasurementError: memory or shared memory ran out, or a process of the loader was killed.
        WorkloadError: the user's code is at fault.
    """
    try:
        with user_code(doing):
            yield
    except Exception as error:
        verdict = classify_exception(error)
        if verdict.status is PointStatus.OOM:
            raise MeasurementError(
                doing,
                found=verdict.reason,
                next_step="use fewer workers or a smaller prefetch, or give shared memory more "
                "room (docker run --shm-size)",
            ) from error
        fault = fault_in_process(str(error.__cause__), folder)
        if isinstance(error, WorkloadError) and fault:
            raise WorkloadError(
                error.doing, found=f"{fault}\n{error.found}", next_step=error.next_step
            ) from error
        raise


def fault_in_process(message: str, folder: Path) -> str:
    """Place and error of what a process of the loader raised; empty where the text has none.

    Args:
        message: Of the error that torch raises in its stead, which quotes the whole traceback.
        folder: Files in it are the user's.
    """
    frames = [
        f"{file}:{line}"
        for file, line in _FRAME.findall(message)
        if Path(file).resolve().is_relative_to(folder.resolve())
        and "site-packages" not in Path(file).parts
    ]
    lines = message.strip().splitlines()
    return f"{frames[-1]}: {lines[-1]}" if frames else ""


def _extent(loader: Any) -> str:
    """How much a loader has to give, as far as it says."""
    try:
        samples = f"{len(loader.dataset):,} samples"
    except (TypeError, NotImplementedError):
        samples = "unknown length"
    return f"a data set of {samples}, batch size {loader.batch_size}, drop_last {loader.drop_last}"
