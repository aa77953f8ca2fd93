"""Device seconds of works, and host seconds to dispatch them, on a device that need not be here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bsprof.accounting.work import Work, WorkClass
from bsprof.hardware.calibration import shipped_calibration
from bsprof.predict.roofline.ceilings import bandwidth_ceiling, compute_ceiling, launch_floor
from bsprof.predict.roofline.families import ROOT, family_of
from bsprof.predict.roofline.groups import LAWS, MULTIPLIERS, law_name
from bsprof.predict.roofline.laws import Parts
from bsprof.predict.roofline.limits import Limits
from bsprof.predict.roofline.shape import shape_of
from bsprof.predict.roofline.terms import resolve
from bsprof.records import DeviceSpec, Regime
from bsprof.records.calibration import (
    Calibration,
    Ceiling,
    Coefficient,
    DeviceCalibration,
)

_SMALL_CACHE_BYTES = 4 * 2**20
"""Second-level cache of a device whose data sheet does not say."""
_UNKNOWN_SPREAD = 0.35
_SHAPE_SPREAD = 0.08
"""1 sigma of the logarithm that shapes add between devices of a family whose ceilings are known;
heuristic: what is left of the fits without a device where its ceiling turned out right."""
STEP_SHARE = 0.6
"""Of the spreads found kernel by kernel, what whole steps show. Kernels of one class err together
in a microbenchmark and less so in a step, and part of what sources differ in is how they measured.
With it about nine tenths of the published steps at hand lie in their 90 % interval."""
_MOST_SHARE = 1.1
"""Of a ceiling that any work may reach: ceilings are medians over sources, some of them slow."""
_STEP_GAIN = 1.0
"""Most that the second-level cache gives within a step. A benchmark that repeats one kernel on the
same data finds up to six times the memory's rate; in a step other work has passed through, and
what is written reaches memory all the same, so that at most the reads are saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Law:
    """A law with the numbers of this device.

    Attributes:
        terms: By name.
        inherited_from: Family whose measurements they are; None where those of the device's own.
        scale: Measured over predicted time of this device.
        devices: Of the same family that were measured.
    """

    terms: Mapping[str, float]
    inherited_from: str | None
    scale: float
    devices: tuple[str, ...]


class Roofline:
    """Laws of one device; make it with `Roofline.of`.

    Attributes:
        device: Whose.
        step_seconds: Host seconds per update that belong to no operator.
        machine_spread: 1 sigma of log time between machines with this device.
        provenance: Sentences: what was measured, what is taken from other devices.
    """

    def __init__(
        self, device: DeviceSpec, calibration: Calibration, *, isolated: bool = False
    ) -> None:
        self.device = device
        self._most_gain = math.inf if isolated else _STEP_GAIN
        self._calibration = calibration
        self._own = calibration.devices.get(device.name, DeviceCalibration(device=device.name))
        self._family = family_of(device)
        self._laws: dict[str, _Law] = {}
        self._limits: dict[str, Limits] = {}
        self._bandwidth = bandwidth_ceiling(device, calibration)
        self._launch = launch_floor(device, calibration)
        self._scale = self._own.machine_scale.value
        host = calibration.host
        self._call_s = (self._own.host_call_s or host.host_call_s).value
        self._backward_call_s = (self._own.host_backward_call_s or host.host_backward_call_s).value
        self.step_seconds = (self._own.step_s or host.step_s).value
        spread = self._own.machine_spread
        usual = STEP_SHARE * calibration.spreads.machine
        self.machine_spread = usual if spread is None else spread

    @classmethod
    def of(
        cls,
        device: DeviceSpec,
        calibration: Calibration | None = None,
        *,
        isolated: bool = False,
    ) -> Roofline:
        """The roofline of a device.

        Args:
            device: Of the catalogue, or the user's own.
            calibration: None takes the shipped one with the user's device files over it.
            isolated: Seconds of one kernel repeated on its own, as benchmarks do, not of kernels
                within a step.

        Raises:
            CalibrationError: a calibration file cannot be understood.
        """
        known = shipped_calibration() if calibration is None else calibration
        if device.kind == "cpu":
            from bsprof.predict.roofline.processor import ProcessorRoofline

            return ProcessorRoofline(device, known)
        return cls(device, known, isolated=isolated)

    def seconds(self, work: Work) -> float:
        """Device seconds of a work, the launch floor of its kernels included."""
        name = law_name(work)
        total = float(self._parts(work, name).total_s) if work.flops or work.bytes else 0.0
        scale = self._scale * self._law(name).scale
        return scale * (total + work.launches * self._launch.value)

    def parts(self, work: Work) -> Parts:
        """What those seconds are spent on, launches left out."""
        return self._parts(work, law_name(work))

    def _parts(self, work: Work, name: str) -> Parts:
        limits = self._limits_of(work.compute)
        return LAWS[name].parts(shape_of(work), limits, self._law(name).terms)

    def resolved(self, law: str) -> tuple[Mapping[str, float], float]:
        """Terms of a law on this device, and its scale: measured over predicted time."""
        found = self._law(law)
        return found.terms, found.scale

    def bound(self, work: Work) -> Regime:
        """Which resource binds a work."""
        parts = self.parts(work)
        waiting = parts.latency_s + work.launches * self._launch.value
        if waiting >= max(parts.compute_s, parts.traffic_s):
            return Regime.LAUNCH
        return Regime.COMPUTE if parts.compute_s > parts.traffic_s else Regime.BANDWIDTH

    def host_seconds(self, works: Iterable[Work]) -> float:
        """Host seconds to dispatch works, one after the other."""
        return sum(
            work.calls * (self._backward_call_s if work.backward else self._call_s)
            for work in works
        )

    def ceiling(self, compute: str) -> Ceiling:
        """FLOP/s that large matmuls of a compute type reach."""
        return compute_ceiling(self.device, compute, self._calibration)

    @property
    def bandwidth(self) -> Ceiling:
        """Bytes/s that large elementwise operators reach."""
        return self._bandwidth

    @property
    def launch(self) -> Coefficient:
        """Device seconds that one kernel takes at least."""
        return self._launch

    @property
    def host_spread(self) -> float:
        """1 sigma of the log of the host's seconds, between hosts."""
        call = self._own.host_call_s or self._calibration.host.host_call_s
        return min(1.0, call.error / call.value)

    def spread(self, work_class: WorkClass, compute: str | None = None) -> float:
        """1 sigma of log(measured / predicted) of a class as a whole on a device like this.

        Systematic: it does not shrink with the number of works.

        Args:
            work_class: The class.
            compute: Compute type of its works; None takes the worst of all types.
        """
        names = [n for n in LAWS if n == work_class.value or n.startswith(f"{work_class.value}/")]
        multipliers = MULTIPLIERS.get(compute or "", "")
        names = [n for n in names if n.endswith(f"/{multipliers}")] or names
        worst = max((self._spread(name) for name in names), default=_UNKNOWN_SPREAD)
        return STEP_SHARE * worst

    def _spread(self, name: str) -> float:
        spreads = self._calibration.spreads
        measured = spreads.measured.get(name, _UNKNOWN_SPREAD)
        if self._is_measured(name):
            return measured
        is_relative = self._law(name).inherited_from is None
        found = (spreads.unmeasured if is_relative else spreads.foreign).get(name, _UNKNOWN_SPREAD)
        if self._own.flops_per_s and self._own.bandwidth_bytes_per_s is not None and is_relative:
            # Its ceilings were measured, of which the fits without a device know nothing.
            found = min(found, math.hypot(measured, _SHAPE_SPREAD))
        return found

    @property
    def provenance(self) -> tuple[str, ...]:
        """Sentences: what was measured on this device, and what is taken from others."""
        found = list(self._own.sources)
        for compute in self.device.flops_per_s:
            if compute in ("fp32", "tf32", "bf16", "fp16"):
                ceiling = self.ceiling(compute)
                found.append(f"ceiling of {compute} matmuls: {ceiling.source}")
        found.append(f"bandwidth: {self._bandwidth.source}")
        found.append(self._said_of_laws())
        return tuple(dict.fromkeys(found))

    def _said_of_laws(self) -> str:
        donors: dict[str, list[str]] = {}
        for name in LAWS:
            donor = self._law(name).inherited_from
            if donor is not None:
                donors.setdefault(donor or "all devices together", []).append(name)
        if not donors:
            return "shapes: measured on this family of devices"
        parts = [f"{donor}: {', '.join(sorted(names))}" for donor, names in sorted(donors.items())]
        return "shapes not measured on this family are taken from " + "; ".join(parts)

    def _is_measured(self, name: str) -> bool:
        """Whether the law, or the one that it is like, was measured on this very device."""
        return name in self._own.laws or self.device.name in self._law(name).devices

    def _law(self, name: str) -> _Law:
        found = self._laws.get(name)
        if found is None:
            found = self._laws[name] = self._resolve(name)
        return found

    def _resolve(self, name: str) -> _Law:
        """Terms of the family, the device's own over them."""
        found = resolve(name, self._family, self._calibration)
        values = {key: coefficient.value for key, coefficient in found.terms.items()}
        donor = None if found.family == self._family != ROOT else found.family
        own = self._own.laws.get(name)
        if own is not None:
            values |= {k: c.value for k, c in own.terms.items() if k in values}
            donor = None if own.rows else donor
        if "cache_gain" in values:
            values["cache_gain"] = min(values["cache_gain"], self._most_gain)
        known = self._own.law_scales.get(name) or self._own.law_scales.get(found.like)
        scale = 1.0 if known is None else known.value
        return _Law(
            terms=values,
            inherited_from=donor,
            scale=max(scale, values["share"] / _MOST_SHARE),
            devices=found.devices,
        )

    def _limits_of(self, compute: str) -> Limits:
        found = self._limits.get(compute)
        if found is None:
            found = self._limits[compute] = Limits(
                flops_per_s=self.ceiling(compute).value,
                bytes_per_s=self._bandwidth.value,
                l2_bytes=float(self.device.l2_bytes or _SMALL_CACHE_BYTES),
                units=float(self.device.compute_units),
            )
        return found
