"""Streams of one workload at any size, from as few traces as are exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bsprof.measure.crew import Trouble
from bsprof.predict.stream import Stream
from bsprof.predict.target import Protocol, TraceTarget
from bsprof.predict.trace.scaling import NotAffine, StreamFamily
from bsprof.predict.worker import TracedSize, TraceWorker, trace_error
from bsprof.records import Note, PointStatus, WorkloadFacts, WorkloadKey, WorkloadSpec

FIRST_SIZE = 16
"""Traced first: large enough that no size of one is taken for a dimension that is always one."""
KEPT_STREAMS = 24
"""Streams of computed sizes that are kept for the next device (memory against time)."""


class Traces:
    """What a worker traces of one workload for one target, and what follows for other sizes.

    Args:
        worker: Traces.
        spec: The workload.
        target: What decides which operators run.
        protocol: How the traced run is put together.
        on_trace: Called with each size before it is traced.
    """

    def __init__(
        self,
        worker: TraceWorker,
        spec: WorkloadSpec,
        target: TraceTarget,
        protocol: Protocol,
        on_trace: Callable[[int], None] = lambda _size: None,
    ) -> None:
        self._worker = worker
        self._spec = spec
        self._target = target
        self._protocol = protocol
        self._on_trace = on_trace
        self._traced: dict[int, TracedSize] = {}
        self._computed: dict[int, Stream] = {}
        self._family: StreamFamily | None = None
        self._notes: list[Note] = []
        self.seconds = 0.0

    @property
    def facts(self) -> WorkloadFacts:
        """What the workload turned out to be; once a size was traced."""
        return self._any().facts

    @property
    def key(self) -> WorkloadKey:
        """Of the workload; once a size was traced."""
        return self._any().key

    @property
    def notes(self) -> tuple[Note, ...]:
        """Of the traces, each once."""
        found = [note for traced in self._traced.values() for note in traced.notes]
        return tuple(dict.fromkeys([*found, *self._notes]))

    @property
    def traced_sizes(self) -> tuple[int, ...]:
        """Sizes that were traced themselves."""
        return tuple(sorted(self._traced))

    def prepare(self, sizes: Sequence[int] = (), cap: int | None = None) -> None:
        """Trace what is needed for the sizes; without any, for every size up to the cap.

        One size alone is traced itself, and no other then follows from it.

        Raises:
            BsprofError: not even the smallest size could be traced.
        """
        if sizes:
            for size in dict.fromkeys((max(sizes), min(sizes))):
                self._trace(size)
        else:
            high = self._first(FIRST_SIZE if cap is None else min(cap, FIRST_SIZE))
            low = self.smallest(cap)
            if low < high and not isinstance(self._try(low), TracedSize):
                self._trace(min(low + 1, high))  # some layers and losses need two samples
        if len(self._traced) > 1:
            low, high = min(self._traced), max(self._traced)
            try:
                self._family = StreamFamily.of(self._traced[low].stream, self._traced[high].stream)
            except NotAffine as error:
                self._notes.append(
                    Note(
                        code="traced-each",
                        message=f"sizes do not simply scale, so each was traced: {error}",
                    )
                )

    def smallest(self, cap: int | None = None) -> int:
        """Where sizes begin: batch normalisation fails on one sample in training."""
        smallest = 2 if self.facts.batch_norm_modules else 1
        return smallest if cap is None else min(smallest, cap)

    def at(self, micro_batch_size: int) -> Stream:
        """The stream of a size.

        Raises:
            BsprofError: it had to be traced, and could not.
        """
        if micro_batch_size in self._traced:
            return self._traced[micro_batch_size].stream
        if self._family is None:
            return self._trace(micro_batch_size).stream
        if micro_batch_size not in self._computed:
            while len(self._computed) >= KEPT_STREAMS:
                del self._computed[next(iter(self._computed))]
            self._computed[micro_batch_size] = self._family.at(micro_batch_size)
        return self._computed[micro_batch_size]

    def _any(self) -> TracedSize:
        return next(iter(self._traced.values()))

    def _first(self, size: int) -> int:
        """The first size that can be traced, from this one downwards; it."""
        while True:
            found = self._try(size)
            if isinstance(found, TracedSize):
                return size
            # What is wrong at every size is told as it is at the smallest.
            hopeless = found.error is not None or found.status is not PointStatus.FAILED
            if size == 1 or hopeless or found.failure.phase != "trace":
                raise trace_error(self._spec, size, found)
            size = max(1, size // 4)

    def _trace(self, size: int) -> TracedSize:
        found = self._try(size)
        if isinstance(found, Trouble):
            raise trace_error(self._spec, size, found)
        return found

    def _try(self, size: int) -> TracedSize | Trouble:
        if size in self._traced:
            return self._traced[size]
        self._on_trace(size)
        found = self._worker.trace(self._spec, size, self._target, self._protocol)
        if isinstance(found, TracedSize):
            self._traced[size] = found
            self.seconds += found.seconds
        return found
