"""Fitted curves, with their errors; evaluated by `bsprof.fit`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bsprof.records.parts import Phase
from bsprof.records.quantity import Quantity


class Saturation(StrEnum):
    """What the throughput curve does over the measured range.

    `saturated`: rises, then levels off inside the range. `rising`: still rises at its end.
    `flat`: the same everywhere, within noise. `falling`: best at the smallest sizes.
    `unknown`: too few points to say.
    """

    SATURATED = "saturated"
    RISING = "rising"
    FLAT = "flat"
    FALLING = "falling"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeFit:
    """Seconds of a micro-step against micro-batch size b: `t(b) = max(floor, t0 + c*b)`.

    The maximum is smooth; see `bsprof.fit.time`. Valid between the smallest and the largest
    measured size; outside, an evaluation is an extrapolation and says so.

    Attributes:
        floor_s: Launch-bound seconds at small b (0 when no floor is visible).
        offset_s, slope_s: t0 and c of the rising part; slope in seconds per sample.
        smoothness_s: Rounding of the corner between the two parts.
        covariance: Of (floor, offset, slope), row by row, in squared units.
        residual: Relative root mean square residual.
        degrees_of_freedom: Points less coefficients that were free.
        low_micro_batch_size, high_micro_batch_size: The measured range.
        saturation: See `Saturation`.
        knee: Smallest micro-batch that reaches `knee_share` of the asymptotic throughput; None
            when the curve does not show it.
        anchors: Measured sizes as (micro-batch size, log of measured over form, relative standard
            error of the measurement); between them the form is corrected by interpolation.
        wiggle: Standard deviation of that log ratio per unit of log size, between two anchors.
        wiggle_degrees_of_freedom: Behind `wiggle`, a prior guess included.
    """

    floor_s: float
    offset_s: float
    slope_s: float
    smoothness_s: float
    covariance: tuple[tuple[float, ...], ...]
    residual: float
    degrees_of_freedom: int
    low_micro_batch_size: int
    high_micro_batch_size: int
    saturation: Saturation
    knee: Quantity | None
    knee_share: float = 0.95
    anchors: tuple[tuple[float, ...], ...] = ()
    wiggle: float = 0.0
    wiggle_degrees_of_freedom: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLine:
    """One phase's peak against micro-batch size: `base_bytes + slope_bytes * b`."""

    phase: Phase
    base_bytes: float
    slope_bytes: float
    covariance: tuple[tuple[float, ...], ...]
    residual_bytes: float
    degrees_of_freedom: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """Peak memory against micro-batch size: the maximum over phases of near-affine lines.

    Attributes:
        lines: One line per phase.
        slope_visible: Whether growth with b can be told from zero in the measured range.
        low_micro_batch_size, high_micro_batch_size: The measured range.
    """

    lines: tuple[PhaseLine, ...]
    slope_visible: bool
    low_micro_batch_size: int
    high_micro_batch_size: int
