"""What a report shows: profiles with their fitted curves, and the recommendation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bsprof.recommend.compared import Comparison
from bsprof.records import MemoryFit, Origin, Phase, Profile, Quantity, Recommendation, TimeFit


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledCurve:
    """A fitted curve sampled at increasing micro-batch sizes, with its 90 % interval.

    Attributes:
        sizes: Micro-batch sizes, increasing.
        values, lows, highs: One per size, in the unit of the quantity.
        measured_to: Largest measured size; beyond it the curve is an extrapolation.
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
        right = bisect_left(self.sizes, size)
        if self.sizes[right] == size:
            return self.values[right]
        low, high = self.sizes[right - 1], self.sizes[right]
        share = (size - low) / (high - low)
        return self.values[right - 1] * (1 - share) + self.values[right] * share

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
        time_fit, memory_fit: None when no fit is possible; `problems` then says why.
        throughput: Samples per second in micro-steps: b over the fitted micro-step seconds.
        micro_step: Seconds of a micro-step.
        memory: Bytes that count against the limit: the maximum of the phases.
        memory_by_phase: The line of each phase, in bytes.
        knee: Smallest size that reaches the stated share of asymptotic throughput; None when
            the curve does not show it.
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
    knee: Quantity | None = None
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
