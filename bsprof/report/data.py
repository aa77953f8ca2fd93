"""What a report shows: profiles with their fitted curves, and the recommendation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bsprof.fit.knee import KNEE_SHARE
from bsprof.recommend.compared import Comparison
from bsprof.records import (
    MemoryFit,
    Origin,
    Phase,
    Profile,
    Quantity,
    Recommendation,
    Saturation,
    TimeFit,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledCurve:
    """A curve sampled at increasing micro-batch sizes, with its 90 % interval.

    Attributes:
        sizes: Micro-batch sizes, increasing.
        values, lows, highs: One per size, in the unit of the quantity.
        measured_to: Largest size that was measured or predicted; beyond it the curve is an
            extrapolation.
    """

    sizes: tuple[int, ...]
    values: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    measured_to: int

    def at(self, size: int) -> float | None:
        """The value at a size, linear between the sampled ones; None outside the curve."""
        if not self.sizes[0] <= size <= self.sizes[-1]:
            return None
        return self._between(self.values, size)

    def at_sizes(self, sizes: Sequence[int]) -> SampledCurve:
        """The same curve sampled at other sizes, all of them within it; linear in between."""
        return replace(
            self,
            sizes=tuple(sizes),
            values=tuple(self._between(self.values, size) for size in sizes),
            lows=tuple(self._between(self.lows, size) for size in sizes),
            highs=tuple(self._between(self.highs, size) for size in sizes),
        )

    def _between(self, row: Sequence[float], size: int) -> float:
        right = bisect_left(self.sizes, size)
        if self.sizes[right] == size:
            return row[right]
        low, high = self.sizes[right - 1], self.sizes[right]
        share = (size - low) / (high - low)
        return row[right - 1] * (1 - share) + row[right] * share

    def scaled(self, factor: float) -> SampledCurve:
        """The same curve in another unit; the factor is above zero."""
        return replace(
            self,
            values=tuple(v * factor for v in self.values),
            lows=tuple(v * factor for v in self.lows),
            highs=tuple(v * factor for v in self.highs),
        )

    def up_to(self, size: int) -> SampledCurve:
        """The part at that size and below."""
        return self._part([i for i, s in enumerate(self.sizes) if s <= size])

    def beyond(self, size: int) -> SampledCurve:
        """The part at that size and above."""
        return self._part([i for i, s in enumerate(self.sizes) if s >= size])

    def _part(self, kept: list[int]) -> SampledCurve:
        return replace(
            self,
            sizes=tuple(self.sizes[i] for i in kept),
            values=tuple(self.values[i] for i in kept),
            lows=tuple(self.lows[i] for i in kept),
            highs=tuple(self.highs[i] for i in kept),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileView:
    """One profile as a report shows it.

    Attributes:
        name: Its name in the store.
        label: Short text that tells it from the other profiles of the report.
        profile: The profile itself.
        time_fit, memory_fit: None when no fit is possible; `problems` then says why. What was
            predicted is shown as it is, and nothing is fitted.
        throughput: Samples per second in micro-steps: b over the micro-step's seconds.
        micro_step: Seconds of a micro-step.
        memory: Bytes that count against the limit: the maximum of the phases.
        memory_by_phase: The line of each phase, in bytes.
        saturation: What throughput does as the size grows; None where no time is known.
        knee: Smallest size that reaches `knee_share` of asymptotic throughput; None when the
            curve does not show it.
        problems: Sentences about what could not be fitted.
    """

    name: str
    label: str
    profile: Profile
    time_fit: TimeFit | None = None
    memory_fit: MemoryFit | None = None
    throughput: SampledCurve | None = None
    micro_step: SampledCurve | None = None
    memory: SampledCurve | None = None
    memory_by_phase: Mapping[Phase, SampledCurve] = field(default_factory=dict)
    saturation: Saturation | None = None
    knee: Quantity | None = None
    knee_share: float = KNEE_SHARE
    problems: tuple[str, ...] = ()


def made_text(data: ReportData) -> str:
    """How the numbers of a report came about: `Measured`, `Predicted`, or both."""
    origins = {view.profile.origin for view in data.views}
    if Origin.PREDICTED not in origins:
        return "Measured"
    return "Predicted" if len(origins) == 1 else "Measured and predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything that an exporter needs; the same data give the same bytes.

    Attributes:
        title: Heading of the report.
        views: At least one profile.
        recommendation: The answer to show at the top; None when no target was given.
        chosen: Index of the view that the recommendation was read from; None without one, or
            when it was read from a profile that is not in this report.
        comparison: How several profiles stand against each other; None with a single one.
    """

    title: str
    views: tuple[ProfileView, ...]
    recommendation: Recommendation | None = None
    chosen: int | None = None
    comparison: Comparison | None = None

    @property
    def chosen_view(self) -> ProfileView | None:
        """The view that the recommendation was read from."""
        return None if self.chosen is None else self.views[self.chosen]

    def chosen_size(self, view: ProfileView) -> int | None:
        """The recommended micro-batch size, if it was read from that view."""
        if self.recommendation is None or self.chosen_view is not view:
            return None
        return self.recommendation.plan.micro_batch_size
