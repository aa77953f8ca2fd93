"""Device seconds of works, and host seconds to dispatch them, on a device that need not be here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bsprof.accounting.work import Work, WorkClass
from bsprof.hardware.calibration import shipped_calibration
from bsprof.predict.roofline.ceilings import bandwidth_ceiling, compute_ceiling, launch_floor
from bsprof.predict.roofline.families import ROOT, family_of, line_of
from bsprof.predict.roofline.groups import LAWS, law_name
from bsprof.predict.roofline.laws import Parts
from bsprof.predict.roofline.limits import Limits
from bsprof.predict.roofline.shape import shape_of
from bsprof.records import DeviceSpec, Regime
from bsprof.records.calibration import Calibration, Ceiling, Coefficient, DeviceCalibration

_SMALL_CACHE_BYTES = 4 * 2**20
"""Second-level cache of a device whose data sheet does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Law:
    """A law with the numbers of this device: terms, and whether any were measured on its family."""

    terms: Mapping[str, float]
    inherited_from: str | None


class Roofline:
    """Laws of one device; make it with `Roofline.of`.

    Attributes:
        device: Whose.
        step_seconds: Host seconds per update that belong to no operator.
        machine_spread: 1 sigma of log time between machines with this device.
        provenance: Sentences: what was measured, what is taken from other devices.
    """

    def __init__(self, device: DeviceSpec, calibration: Calibration) -> None:
        self.device = device
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
        self.machine_spread = calibration.spreads.machine if spread is None else spread

    @classmethod
    def of(cls, device: DeviceSpec, calibration: Calibration | None = None) -> Roofline:
        """The roofline of a device.

        Args:
            device: Of the catalogue, or the user's own.
            calibration: None takes the shipped one with the user's device files over it.

        Raises:
            CalibrationError: a calibration file cannot be understood.
        """
        return cls(device, shipped_calibration() if calibration is None else calibration)

    def seconds(self, work: Work) -> float:
        """Device seconds of a work, the launch floor of its kernels included."""
        total = self.parts(work).total_s if work.flops or work.bytes else 0.0
        return self._scale * (float(total) + work.launches * self._launch.value)

    def parts(self, work: Work) -> Parts:
        """What those seconds are spent on, launches left out."""
        name = law_name(work)
        law = self._law(name)
        return LAWS[name].parts(shape_of(work), self._limits_of(work.compute), law.terms)

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

    def spread(self, work_class: WorkClass) -> float:
        """1 sigma of log(measured / predicted) of a class as a whole on a device like this.

        Systematic: it does not shrink with the number of works.
        """
        names = [n for n in LAWS if n == work_class.value or n.startswith(f"{work_class.value}/")]
        spreads = self._calibration.spreads
        worst = 0.0
        for name in names:
            table = spreads.foreign
            if self._is_measured(name):
                table = spreads.measured
            elif self._law(name).inherited_from is None:
                table = spreads.unmeasured
            worst = max(worst, table.get(name, table.get("", 0.3)))
        return worst or spreads.foreign.get("", 0.3)

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
        if name in self._own.laws:
            return True
        family = self._calibration.families.get(self._family)
        law = family.laws.get(name) if family is not None else None
        return law is not None and self.device.name in law.devices

    def _law(self, name: str) -> _Law:
        found = self._laws.get(name)
        if found is None:
            found = self._laws[name] = self._resolve(name)
        return found

    def _resolve(self, name: str) -> _Law:
        """Terms from the root to the device, the nearest winning; defaults where there are none."""
        values = {key: term.default for key, term in LAWS[name].terms.items()}
        donor: str | None = ROOT
        for family in reversed(line_of(self._family)):
            known = self._calibration.families.get(family)
            law = known.laws.get(name) if known is not None else None
            if law is None:
                continue
            values |= {k: c.value for k, c in law.terms.items() if k in values}
            if law.rows:
                donor = family
        if donor == self._family and donor != ROOT:
            donor = None
        own = self._own.laws.get(name)
        if own is not None:
            values |= {k: c.value for k, c in own.terms.items() if k in values}
            donor = None if own.rows else donor
        return _Law(terms=values, inherited_from=donor)

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
