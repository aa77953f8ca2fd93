"""Fitted coefficients of the time model, with their errors and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bsprof.records.device import DeviceSpec

CALIBRATION_SCHEMA = 1
"""Format of `roofline.json` and of device files.

1: first format.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """A fitted number, zero or more, and its standard error in the same unit.

    Raises `ValueError` for a negative value or error.
    """

    value: float
    error: float = 0.0

    def __post_init__(self) -> None:
        if self.value < 0 or self.error < 0:
            raise ValueError(f"a coefficient and its error are not negative: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The best rate that a device reaches: FLOP/s of a large matmul, or bytes/s of its memory.

    Attributes:
        value: Median of what was measured, in FLOP/s or bytes/s.
        spread: 1 sigma of its logarithm between machines and sources.
        measurements: How many sources measured it; 0 where it is derived from the data sheet.
        source: Who measured it, or how it was derived.
    """

    value: float
    spread: float
    measurements: int = 0
    source: str = ""

    def __post_init__(self) -> None:
        if not self.value > 0 or self.spread < 0:
            raise ValueError(f"a ceiling is above zero, its spread not below: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LawTerms:
    """Coefficients of one law on one family of devices, or on one device.

    Attributes:
        terms: By name; what they mean stands in the law's own module.
        rows: Measurements of just this family behind them; 0 where all is inherited.
        devices: Catalogue names of the devices measured, sorted.
        inherited_from: Family whose coefficients they were drawn to; empty for the root.
    """

    terms: Mapping[str, Coefficient]
    rows: int = 0
    devices: tuple[str, ...] = ()
    inherited_from: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LikeLaw:
    """Which law stands for one that was not measured.

    Attributes:
        law: Whose terms are taken.
        share: Factor on its share: how much better the largest works do.
        factors: Factors on other terms.
        spread: 1 sigma of the logarithm of the share's factor.
    """

    law: str
    share: float = 1.0
    factors: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyCalibration:
    """What devices of one architecture share.

    Attributes:
        laws: By law: `matmul/half`, `softmax`.
        ceiling_factors: Measured ceiling over what `Calibration.ceilings` expects, typical of the
            family, by multipliers.
        bandwidth_share: Measured bandwidth over the data sheet's, typical of the family.
        launch_s: Device seconds that one kernel takes at least, back to back.
    """

    laws: Mapping[str, LawTerms]
    ceiling_factors: Mapping[str, Coefficient]
    bandwidth_share: Coefficient
    launch_s: Coefficient


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingLaw:
    """What share of its data sheet a device reaches: share / (1 + density / half_density).

    Density is the data sheet's FLOP/s over the board's power limit: parts that pack more
    multipliers than their power feeds stay further below.

    Attributes:
        share: Of a device with power to spare.
        half_density: FLOP/s per watt at which half of that is left.
        deviation: 1 sigma of the logarithm around it.
    """

    share: Coefficient
    half_density: Coefficient
    deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCalibration:
    """What was measured on one device; whatever is missing is taken from its family.

    Attributes:
        device: Name in the device catalogue.
        spec: The device itself, where the catalogue has none (a processor); else None.
        flops_per_s: Ceilings by compute type (`fp32`, `tf32`, `bf16`, `fp16`).
        bandwidth_bytes_per_s: Of large copies and elementwise operators.
        launch_s: As in `FamilyCalibration`.
        host_call_s: Host seconds to dispatch an operator in a forward pass.
        host_backward_call_s: The same in a backward pass, where no Python runs.
        step_s: Host seconds per update that belong to no operator.
        laws: Coefficients of this very device, by law.
        law_scales: Measured over predicted time of this device, by law: what its family's terms
            and its ceilings leave.
        machine_scale: Measured over predicted time on this machine; 1 where not measured.
        machine_spread: 1 sigma of log time between machines with this device; None where unknown.
        sources: Sentences for people: what was measured, where and when.
    """

    device: str
    spec: DeviceSpec | None = None
    flops_per_s: Mapping[str, Ceiling] = field(default_factory=dict)
    bandwidth_bytes_per_s: Ceiling | None = None
    launch_s: Coefficient | None = None
    host_call_s: Coefficient | None = None
    host_backward_call_s: Coefficient | None = None
    step_s: Coefficient | None = None
    laws: Mapping[str, LawTerms] = field(default_factory=dict)
    law_scales: Mapping[str, Coefficient] = field(default_factory=dict)
    machine_scale: Coefficient = field(default_factory=lambda: Coefficient(value=1.0))
    machine_spread: float | None = None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCalibration:
    """What a usual host costs; the errors say how widely hosts differ.

    Attributes: as the fields of the same names in `DeviceCalibration`.
    """

    host_call_s: Coefficient
    host_backward_call_s: Coefficient
    step_s: Coefficient


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """How well a law describes one source's measurements of one device.

    Attributes:
        device: Catalogue name.
        law: As in `FamilyCalibration.laws`.
        source: Which file and machine.
        rows: Measurements.
        median, p90: Of |predicted / measured - 1|, machine scale of the source applied.
        bias: Median of log(measured / predicted) without that scale.
        left_out_median, left_out_p90, left_out_bias: The same, without scale, when the fit has
            seen neither the device's kernels nor its ceilings; None where not evaluated.
    """

    device: str
    law: str
    source: str
    rows: int
    median: float
    p90: float
    bias: float
    left_out_median: float | None = None
    left_out_p90: float | None = None
    left_out_bias: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file of measurements: name, sha256 of its bytes, and rows used."""

    name: str
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """How far predictions lie from measurements, as 1 sigma of log(measured / predicted).

    Attributes:
        measured: By law, on devices of which kernels were measured, on another machine.
        unmeasured: By law, on devices of measured families that were left out of the fit.
        foreign: By law, on families of which nothing was measured.
        machine: Between machines with the same device.
    """

    measured: Mapping[str, float]
    unmeasured: Mapping[str, float]
    foreign: Mapping[str, float]
    machine: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Everything that the time model was fitted to.

    Attributes:
        schema: `CALIBRATION_SCHEMA` of the file.
        families: By family (`hopper`, `ampere 8.6`); the empty name is the root of all.
        devices: By catalogue name.
        like: By law that families lack, the one that stands for it.
        ceilings: What to expect of unmeasured devices, by multipliers (`half`, `tf32`, `fp32`).
        host: Of a usual host.
        spreads: Of the laws.
        residuals: By device, law and source.
        files: Measurements it was fitted to.
        notes: Sentences about the fit as a whole.
    """

    schema: int
    families: Mapping[str, FamilyCalibration]
    devices: Mapping[str, DeviceCalibration]
    ceilings: Mapping[str, CeilingLaw]
    host: HostCalibration
    spreads: Spreads
    like: Mapping[str, LikeLaw] = field(default_factory=dict)
    residuals: tuple[Residual, ...] = ()
    files: tuple[InputFile, ...] = ()
    notes: tuple[str, ...] = ()
