"""The predicted points of one workload on one device: which sizes, and the largest that fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from bsprof.errors import BsprofError
from bsprof.predict.allocator import Verdict
from bsprof.predict.memory import MemoryModel, MemoryPrediction
from bsprof.predict.points import point_of
from bsprof.predict.search import LARGEST, largest_that
from bsprof.predict.terms import End
from bsprof.predict.timeline import timeline_of
from bsprof.records import Failure, Point, PointStatus, Quantity

MOST_GROWING = 10
"""Sizes from the smallest to the largest, at most; then the factor between them is 4, not 2."""
SHARE_ABOVE = 0.05
"""How far above the largest size that fits the first one that does not is shown."""


class Forecast:
    """Predicts sizes of one workload on one device, each once.

    Args:
        model: Its memory.
        smallest: Where sizes begin.
        cap: No size is larger; None is no cap.
        within: Share to which the largest size is looked for; 0 finds it.
    """

    def __init__(
        self, model: MemoryModel, *, smallest: int, cap: int | None, within: float = 0.0
    ) -> None:
        self._model = model
        self._smallest = smallest
        self._cap = cap
        self._within = within
        self._predictions: dict[int, MemoryPrediction] = {}

    def prediction(self, micro_batch_size: int) -> MemoryPrediction:
        """Of one size."""
        if micro_batch_size not in self._predictions:
            self._predictions[micro_batch_size] = self._model.predict(micro_batch_size)
        return self._predictions[micro_batch_size]

    def largest(self) -> Quantity | None:
        """The largest size that fits without a cache flush; None where none does.

        Its ends are the largest sizes that fit under the least and the most favourable plausible
        circumstances; an end where not even the smallest size fits is 0. A size that cannot be
        traced counts as one that does not fit.
        """
        guess = self._guess()
        value = self._search(guess, End.NOMINAL)
        high = self._search(value or self._smallest, End.HIGH)
        low = self._search(value or self._smallest, End.LOW)
        if value is None:
            return None
        return Quantity.ordered(value, high or 0, low or value)

    def largest_after_flush(self, fits: int) -> int:
        """The largest size that runs, if need be after cache flushes; at least `fits`."""
        found = largest_that(
            self._where_traced(lambda b: self._model.verdict(b) is not Verdict.OUT_OF_MEMORY),
            guess=fits,
            smallest=max(fits, self._smallest),
            cap=self._cap,
            within=self._within,
        )
        return max(fits, found or 0)

    def sizes(self, largest: Quantity | None) -> tuple[int, ...]:
        """Sizes that show the whole curve, those around the largest, and one that does not fit."""
        if largest is None:
            return (self._smallest,)
        top = int(largest.value)
        factor = 2 if top <= self._smallest * 2**MOST_GROWING else 4
        growing: list[int] = []
        size = self._smallest
        while size < top and len(growing) < 2 * MOST_GROWING:
            growing.append(size)
            size *= factor
        safe = int(largest.low)
        wanted = {*growing, top}
        if safe >= self._smallest:
            wanted.add(safe)
        if top < min(LARGEST, self._cap or LARGEST):
            wanted.add(self._above(top))
        return tuple(sorted(wanted))

    def points(
        self,
        sizes: Sequence[int],
        largest: Quantity | None,
        on_point: Callable[[Point], None] = lambda _point: None,
        with_time: Callable[[Point], Point] = lambda point: point,
    ) -> tuple[Point, ...]:
        """The points of these sizes, in their order; the largest that fits has its timeline.

        Args:
            largest: The largest size that fits.
            on_point: Called with each point.
            with_time: What becomes of a point that fits: the same with its times.
        """
        usable = self._model.conditions.usable_bytes()
        kept = self._size_to_draw(sizes, largest)
        points = []
        for size in sizes:
            point = self._skipped(size) or self._point(size, usable, draw=size == kept)
            if point.status is PointStatus.OK:
                point = with_time(point)
            points.append(point)
            on_point(point)
        return tuple(points)

    def _point(self, size: int, usable_bytes: int, *, draw: bool) -> Point:
        try:
            prediction = self.prediction(size)
        except BsprofError as error:  # a size that had to be traced, and could not
            failure = Failure(
                reason=error.doing, phase="trace", tail=tuple(error.found.splitlines())
            )
            return Point(micro_batch_size=size, status=PointStatus.FAILED, failure=failure)
        timeline = None
        if draw:
            timeline = timeline_of(self._model.timeline(size), self._model.stream(size))
        reserves = self._model.conditions.device.kind != "cpu"
        return point_of(prediction, usable_bytes, timeline, reserves=reserves)

    def _skipped(self, size: int) -> Point | None:
        if self._cap is None or size <= self._cap:
            return None
        failure = Failure(reason=f"larger than the data set or the cap, {self._cap}", phase="start")
        return Point(micro_batch_size=size, status=PointStatus.SKIPPED, failure=failure)

    def _size_to_draw(self, sizes: Sequence[int], largest: Quantity | None) -> int | None:
        """The largest of the sizes that fits; the smallest where none does."""
        fitting = [b for b in sizes if largest is None or b <= largest.value]
        return max(fitting, default=None) if largest is not None else min(sizes, default=None)

    def _where_traced(self, holds: Callable[[int], bool]) -> Callable[[int], bool]:
        """The same of sizes that can be traced; of others it does not hold."""

        def asked(size: int) -> bool:
            try:
                return holds(size)
            except BsprofError:  # what traced it knows why
                return False

        return asked

    def _search(self, guess: int, need: End) -> int | None:
        try:
            holds = self._model.fits_like(guess, need)
        except BsprofError:  # the guess cannot be traced; others may be
            holds = partial(self._model.fits, need=need)
        return largest_that(
            self._where_traced(holds),
            guess=guess,
            smallest=self._smallest,
            cap=self._cap,
            within=self._within,
        )

    def _guess(self) -> int:
        """Where the line through the peaks of two sizes meets what is usable."""
        model = self._model
        # A size of one is special, and may need a trace of its own.
        low = max(self._smallest, 2)
        high = max(2 * low, 16)
        if self._cap is not None:
            high = min(high, self._cap)
        if high <= low:
            return low
        usable = model.conditions.usable_bytes()
        for _ in range(2):  # once more near the limit, past kinks and rounded segments
            try:
                used = [model.needed_bytes(b) for b in (low, high)]
            except BsprofError:  # the larger one cannot be traced: the search goes on from below
                return low
            slope = (used[1] - used[0]) / (high - low)
            if slope <= 0:
                return high
            guess = max(self._smallest, math.floor(high + (usable - used[1]) / slope))
            guess = min(guess, LARGEST, self._cap or LARGEST)
            if guess <= high:
                return guess
            low, high = high, guess
        return guess

    def _above(self, top: int) -> int:
        """A size some percent above the largest that fits."""
        above = top + max(1, round(top * SHARE_ABOVE))
        return above if self._cap is None else min(above, self._cap)
