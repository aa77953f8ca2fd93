"""Streams of one workload at any size, from as few traces as are exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bsprof.errors import UsageError
from bsprof.measure.crew import Trouble
from bsprof.predict.stream import Stream
from bsprof.predict.target import Protocol, TraceTarget
from bsprof.predict.trace.scaling import SMALLEST, NotAffine, StreamFamily
from bsprof.predict.worker import TracedSize, TraceWorker, trace_error
from bsprof.records import Note, PointStatus, WorkloadFacts, WorkloadKey, WorkloadSpec

FIRST_SIZE = 16
"""Traced first: large enough that no size of one is taken for a dimension that is always one."""
KEPT_STREAMS = 12
"""Streams of computed sizes that are kept for the next device (memory against time)."""


class Traces:
    """What a worker traces of one workload for one target, and what follows for other sizes.

    Args:
        worker: Traces.
        spec: The workload.
        target: What decides which operators run.
        protocol: How the traced run is put together.
        others: Further targets that may share the traces.
        on_trace: Called with each size before it is traced.
    """

    def __init__(
        self,
        worker: TraceWorker,
        spec: WorkloadSpec,
        target: TraceTarget,
        protocol: Protocol,
        *,
        others: Sequence[TraceTarget] = (),
        on_trace: Callable[[int], None] = lambda _size: None,
    ) -> None:
        self._worker = worker
        self._spec = spec
        self._target = target
        self._protocol = protocol
        self._others = tuple(others)
        self._on_trace = on_trace
        self._traced: dict[int, TracedSize] = {}
        self._failed: dict[int, Trouble] = {}
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

    def serve(self, target: TraceTarget) -> bool:
        """Whether the traces so far are a target's as well."""
        return target == self._target or all(
            target in traced.shared_by for traced in self._traced.values()
        )

    def prepare(self, sizes: Sequence[int] = (), cap: int | None = None) -> None:
        """Trace what is needed for the sizes; without any, for every size up to the cap.

        One size alone is traced itself, and no other then follows from it.

        Raises:
            BsprofError: not even the smallest size could be traced.
        """
        if sizes:
            high, low = self._first(max(sizes), sizes), min(sizes)
        else:
            high = self._border(self._first(FIRST_SIZE if cap is None else min(cap, FIRST_SIZE)))
            low = self.smallest(cap)
        # Dimensions of one are special; what is larger may scale where that size does not.
        lows = [b for b in dict.fromkeys((low, SMALLEST)) if low <= b < high]
        problems = []
        for low in lows:
            problem = self._scaled(low, high)
            if problem is None:
                return
            problems.append(problem)
        if problems:
            self._notes.append(
                Note(
                    code="traced-each",
                    message="sizes do not simply scale, so each was traced by itself: "
                    + problems[-1],
                )
            )

    @property
    def scales(self) -> bool:
        """Whether other sizes follow from those that were traced."""
        return self._family is not None

    def smallest(self, cap: int | None = None) -> int:
        """Where sizes begin: batch normalisation fails on one sample in training."""
        needs_two = self.facts.batch_norm_modules > 0 or 1 in self._failed
        smallest = 2 if needs_two else 1
        return smallest if cap is None else min(smallest, cap)

    @property
    def cap(self) -> int | None:
        """The largest size below one that was tried, above those traced, and failed; None if none.

        A step that fails at some size fails above it too: nothing is computed for those.
        """
        least = min(self._traced, default=0)
        failed = [b for b in self._failed if b > least]
        return min(failed) - 1 if failed else None

    def reason(self, micro_batch_size: int) -> str:
        """Why a size that was tried failed."""
        return self._failed[micro_batch_size].failure.reason

    def at(self, micro_batch_size: int) -> Stream:
        """The stream of a size.

        Raises:
            BsprofError: it had to be traced, and could not.
        """
        if micro_batch_size in self._traced:
            return self._traced[micro_batch_size].stream
        beyond = self.cap is not None and micro_batch_size > self.cap
        if self._family is None or micro_batch_size < SMALLEST or beyond:
            return self._trace(micro_batch_size).stream
        if micro_batch_size not in self._computed:
            while len(self._computed) >= KEPT_STREAMS:
                del self._computed[next(iter(self._computed))]
            self._computed[micro_batch_size] = self._family.at(micro_batch_size)
        return self._computed[micro_batch_size]

    def _scaled(self, low: int, high: int) -> str | None:
        """Have every size follow from two; why not, where that is not exact."""
        small, large = self._try(low), self._try(high)
        if isinstance(small, Trouble) or isinstance(large, Trouble):
            failed = small if isinstance(small, Trouble) else large
            assert isinstance(failed, Trouble)
            return f"micro-batch {low} failed: {failed.failure.reason}"
        try:
            self._family = StreamFamily.of(small.stream, large.stream)
        except NotAffine as error:
            return str(error)
        return None

    def _any(self) -> TracedSize:
        return next(iter(self._traced.values()))

    def _first(self, size: int, others: Sequence[int] = ()) -> int:
        """The first size that can be traced, from this one downwards; it.

        Args:
            size: Tried first.
            others: The only ones to go on with; empty for any smaller one.
        """
        left = sorted(b for b in others if b < size)
        first: tuple[int, Trouble] | None = None
        while True:
            found = self._try(size)
            if isinstance(found, TracedSize):
                return size
            first = first or (size, found)
            # A data set may be too small for one size; an option is wrong at all of them.
            hopeless = isinstance(found.error, UsageError) or (
                found.status is not PointStatus.FAILED or found.failure.phase != "trace"
            )
            if hopeless or (not left if others else size == 1):
                raise trace_error(self._spec, *first)
            size = left.pop() if others else max(1, size // 4)

    def _border(self, size: int) -> int:
        """The largest size that can be traced, if one above `size` could not; else `size`."""
        while self.cap is not None and self.cap > size:
            middle = (size + self.cap + 1) // 2
            size = middle if isinstance(self._try(middle), TracedSize) else size
        return size

    def _trace(self, size: int) -> TracedSize:
        found = self._try(size)
        if isinstance(found, Trouble):
            raise trace_error(self._spec, size, found)
        return found

    def _try(self, size: int) -> TracedSize | Trouble:
        known = self._traced.get(size) or self._failed.get(size)
        if known is not None:
            return known
        self._on_trace(size)
        found = self._worker.trace(self._spec, size, self._target, self._protocol, self._others)
        if isinstance(found, TracedSize):
            self._traced[size] = found
            self.seconds += found.seconds
        else:
            self._failed[size] = found
        return found
