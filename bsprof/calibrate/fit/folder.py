"""The whole calibration from a folder of public kernel measurements."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bsprof.calibrate.fit.evaluate import quantile
from bsprof.calibrate.fit.expected import facts_of, without_laws
from bsprof.calibrate.fit.kin import KIN, order
from bsprof.calibrate.fit.law_fit import DeviceFacts, LawFit, fit_law
from bsprof.calibrate.fit.measurements import Measurements, read_measurements
from bsprof.calibrate.fit.rows import KernelRow, by_law
from bsprof.calibrate.fit.sources.attention import backward_of
from bsprof.calibrate.fit.sources.table import thinned
from bsprof.hardware.catalogue import devices as catalogue
from bsprof.predict.roofline.families import ROOT, line_of
from bsprof.predict.roofline.groups import EXPECTED_DEPARTURES, LAWS, law_name
from bsprof.predict.roofline.limits import Limits
from bsprof.predict.roofline.shape import shape_of
from bsprof.predict.roofline.terms import taken_over
from bsprof.records.calibration import (
    Calibration,
    Coefficient,
    DeviceCalibration,
    LawTerms,
    Residual,
)

_RESEMBLANCE = 0.25
"""1 sigma of the logarithm between terms of laws that are like each other, at least; heuristic."""
MOST_ROWS = 450
"""Rows of one source that a law is fitted to; more change nothing but the time it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A calibration, and the fixed costs that sources' times hold, which are no device's.

    Attributes:
        calibration: Without spreads from devices left out.
        floors_s: By law and source.
    """

    calibration: Calibration
    floors_s: Mapping[tuple[str, str], float]


def fit_folder(folder: Path, leave_out: Collection[str] = ()) -> Calibration:
    """A calibration from the kernel measurements in a folder.

    Args:
        folder: With the files that `read_measurements` knows.
        leave_out: Devices whose kernels and measured maxima are not looked at: catalogue names,
            or beginnings of them (`h100`).

    Raises:
        CalibrationError: a file is missing or cannot be read, or a name means no device.
    """
    measurements = read_measurements(folder).without(leave_out)
    return fit_measurements(measurements).calibration


def fit_measurements(measurements: Measurements, *, only: Collection[str] | None = None) -> Fitted:
    """Ceilings, launch floors, laws, and which laws stand for those without rows.

    Args:
        measurements: Read from a folder.
        only: Laws to fit, with all that they are like; None fits all.
    """
    specs = {device.name: device for device in catalogue()}
    base = without_laws(measurements, specs)
    facts = {name: facts_of(specs[name], base) for name in sorted(specs)}
    work = _Laws(facts=facts)
    rows = by_law(measurements.rows)
    for law in order(LAWS):
        if only is None or law in wanted(only):
            backward = [
                backward_of(row, work.seconds(row))
                for row in measurements.both_passes
                if law == law_name(row.work).replace("forward", "backward")
            ]
            work.add(law, _some([*rows.get(law, []), *backward]))
    families = {
        name: dataclasses.replace(family, laws=work.terms.get(name, {}))
        for name, family in base.families.items()
    }
    devices = {
        name: dataclasses.replace(
            base.devices.get(name, DeviceCalibration(device=name)),
            law_scales=work.scales.get(name, {}),
        )
        for name in sorted(set(base.devices) | set(work.scales))
    }
    calibration = dataclasses.replace(
        base,
        families=families,
        like=KIN,
        devices=devices,
        residuals=tuple(work.residuals),
        files=measurements.files,
    )
    return Fitted(calibration=calibration, floors_s=work.floors)


@dataclass(slots=True)
class _Laws:
    """Laws fitted so far: terms by family and law, scales by device and law."""

    facts: Mapping[str, DeviceFacts]
    terms: dict[str, dict[str, LawTerms]] = field(default_factory=dict)
    scales: dict[str, dict[str, Coefficient]] = field(default_factory=dict)
    residuals: list[Residual] = field(default_factory=list)
    floors: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(self, law: str, rows: Sequence[KernelRow]) -> None:
        """Fit a law to its rows, if there are any, drawn to the law that it is like."""
        if not rows:
            return
        prior = self._prior(law)
        departures = {
            family: terms for (name, family), terms in EXPECTED_DEPARTURES.items() if name == law
        }
        fit = fit_law(LAWS[law], rows, self.facts, prior=prior, departures=departures)
        for family, terms in fit.terms.items():
            self.terms.setdefault(family, {})[law] = terms
        for device, scale in fit.device_scales.items():
            self.scales.setdefault(device, {})[law] = scale
        self.residuals += _residuals(law, rows, fit)
        self.floors |= {(law, source): floor for source, floor in fit.floors.items()}

    def seconds(self, row: KernelRow) -> float:
        """Seconds of a row's work by its law, which is fitted already, on its device."""
        law, facts = law_name(row.work), self.facts[row.device]
        terms = next(
            self.terms[family][law].terms
            for family in line_of(facts.family)
            if law in self.terms.get(family, {})
        )
        scale = self.scales.get(row.device, {}).get(law)
        parts = LAWS[law].parts(
            shape_of(row.work),
            Limits(
                flops_per_s=facts.flops_per_s[row.work.compute],
                bytes_per_s=facts.bytes_per_s,
                l2_bytes=facts.l2_bytes,
                units=facts.units,
            ),
            {name: term.value for name, term in terms.items()},
        )
        total = float(parts.total_s) + row.work.launches * facts.launch_s
        return total * (1.0 if scale is None else scale.value)

    def _prior(self, law: str) -> dict[str, Coefficient] | None:
        """The root's terms of the law that it is like, no surer than such laws are alike."""
        kin = KIN.get(law)
        source = self.terms.get(ROOT, {}).get(kin.law) if kin is not None else None
        if kin is None or source is None:
            return None
        return {
            name: Coefficient(value=c.value, error=max(c.error, _RESEMBLANCE * c.value))
            for name, c in taken_over(law, kin, source.terms).items()
        }


def wanted(laws: Collection[str]) -> set[str]:
    """The laws, and all that they are like."""
    found = set(laws)
    for law in laws:
        while law in KIN:
            law = KIN[law].law
            found.add(law)
    forward = [law.replace("backward", "forward") for law in found if law.startswith("attention")]
    return found | set(forward)


def _some(rows: Sequence[KernelRow]) -> list[KernelRow]:
    """Rows of a law with those of every source thinned."""
    by_source: dict[tuple[str, str], list[KernelRow]] = {}
    for row in rows:
        by_source.setdefault((row.device, row.source), []).append(row)
    return [row for group in by_source.values() for row in thinned(group, MOST_ROWS)]


def _residuals(law: str, rows: Sequence[KernelRow], fit: LawFit) -> list[Residual]:
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row, own, raw in zip(rows, fit.residuals, fit.unscaled, strict=True):
        found.setdefault((row.device, row.source), []).append((float(own), float(raw)))
    return [
        Residual(
            device=device,
            law=law,
            source=source,
            rows=len(pairs),
            median=quantile([abs(math.expm1(own)) for own, _raw in pairs], 0.5),
            p90=quantile([abs(math.expm1(own)) for own, _raw in pairs], 0.9),
            bias=-statistics.median(raw for _own, raw in pairs),
        )
        for (device, source), pairs in sorted(found.items())
    ]
