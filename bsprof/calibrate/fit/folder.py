"""The whole calibration from a folder of public kernel measurements."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bsprof.calibrate.fit.evaluate import quantile
from bsprof.calibrate.fit.expected import facts_of, without_laws
from bsprof.calibrate.fit.law_fit import LawFit, fit_law
from bsprof.calibrate.fit.measurements import Measurements, read_measurements
from bsprof.calibrate.fit.rows import KernelRow, by_law
from bsprof.calibrate.fit.sources.table import thinned
from bsprof.hardware.catalogue import devices as catalogue
from bsprof.predict.roofline.groups import LAWS
from bsprof.records.calibration import Calibration, LawTerms, Residual

MOST_ROWS = 900
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
    """Ceilings, launch floors and laws.

    Args:
        measurements: Read from a folder.
        only: Laws to fit; None fits all that have rows.
    """
    specs = {device.name: device for device in catalogue()}
    base = without_laws(measurements, specs)
    facts = {
        name: facts_of(specs[name], base)
        for name in sorted({row.device for row in measurements.rows})
    }
    laws: dict[str, dict[str, LawTerms]] = {}
    residuals: list[Residual] = []
    floors: dict[tuple[str, str], float] = {}
    for law, rows in by_law(measurements.rows).items():
        if only is not None and law not in only:
            continue
        rows = _some(rows)
        fit = fit_law(LAWS[law], rows, facts)
        for family, terms in fit.terms.items():
            laws.setdefault(family, {})[law] = terms
        residuals += _residuals(law, rows, fit)
        floors |= {(law, source): floor for source, floor in fit.floors.items()}
    families = {
        name: dataclasses.replace(family, laws=laws.get(name, {}))
        for name, family in base.families.items()
    }
    calibration = dataclasses.replace(
        base, families=families, residuals=tuple(residuals), files=measurements.files
    )
    return Fitted(calibration=calibration, floors_s=floors)


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
