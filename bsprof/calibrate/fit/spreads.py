"""Spreads of the laws: each device, and each family, predicted by fits that have not seen it."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from bsprof.calibrate.fit.evaluate import (
    Group,
    log_errors,
    median_bias,
    quantile,
    root_mean_square,
)
from bsprof.calibrate.fit.folder import Fitted, fit_measurements
from bsprof.calibrate.fit.kin import KIN, order
from bsprof.calibrate.fit.measurements import Measurements
from bsprof.calibrate.fit.rows import KernelRow
from bsprof.calibrate.fit.sources.table import thinned
from bsprof.hardware.catalogue import devices as catalogue
from bsprof.predict.roofline.families import family_of
from bsprof.predict.roofline.groups import LAWS, law_name
from bsprof.records import DeviceSpec
from bsprof.records.calibration import Calibration, Residual, Spreads

_JUDGED_ROWS = 100
"""Rows of one law and source that are predicted anew."""
_LEAST_ROWS = 5
_PRIOR = 0.12
_FOREIGN_PRIOR = 0.2
_UNKNOWN = 0.35
"""Spread of a law of which nothing was measured anywhere: its coefficients are expectations."""


def with_spreads(measurements: Measurements, fitted: Fitted) -> Calibration:
    """The fitted calibration with spreads, and with what fits without each device make of it."""
    specs = {device.name: device for device in catalogue()}
    rows = _judged(measurements.rows)
    known: dict[frozenset[str], Calibration] = {}
    by_device = _left_out(measurements, fitted, rows, specs, lambda name: name, known)
    by_family = _left_out(
        measurements, fitted, rows, specs, lambda name: family_of(specs[name]), known
    )
    residuals = tuple(_completed(r, by_device) for r in fitted.calibration.residuals)
    spreads = Spreads(
        measured=_with_kin(_by_law(_source_biases(fitted.calibration.residuals), _PRIOR)),
        unmeasured=_with_kin(_by_law(_biases(by_device), _PRIOR)),
        foreign=_with_kin(_by_law(_biases(by_family), _FOREIGN_PRIOR)),
        machine=_machine(fitted.calibration.residuals),
    )
    return dataclasses.replace(fitted.calibration, residuals=residuals, spreads=spreads)


def _judged(rows: Sequence[KernelRow]) -> list[KernelRow]:
    groups: dict[Group, list[KernelRow]] = {}
    for row in rows:
        groups.setdefault((row.device, law_name(row.work), row.source), []).append(row)
    return [row for group in groups.values() for row in thinned(group, _JUDGED_ROWS)]


def _left_out(
    measurements: Measurements,
    fitted: Fitted,
    rows: Sequence[KernelRow],
    specs: Mapping[str, DeviceSpec],
    group_of: Callable[[str], str],
    known: dict[frozenset[str], Calibration],
) -> dict[Group, list[float]]:
    """log(predicted / measured) by fits without the group that a device belongs to.

    Args:
        measurements: All of them.
        fitted: To all of them; the fixed costs of sources are taken from it.
        rows: To predict.
        specs: Devices by name.
        group_of: From a device's name to what is left out with it.
        known: Fits by what was left out of them; added to.
    """
    found: dict[Group, list[float]] = {}
    groups = sorted({group_of(row.device) for row in rows})
    for group in groups:
        gone = [name for name in specs if group_of(name) == group]
        own = [row for row in rows if row.device in gone]
        laws = {law_name(row.work) for row in own}
        measured = frozenset(row.device for row in own)
        if measured not in known:
            kept = measurements.without(gone)
            known[measured] = fit_measurements(kept, only=laws).calibration
        found |= log_errors(own, known[measured], specs, fitted.floors_s)
    return found


def _completed(residual: Residual, left_out: Mapping[Group, Sequence[float]]) -> Residual:
    errors = left_out.get((residual.device, residual.law, residual.source))
    if not errors:
        return residual
    sizes = [abs(math.expm1(error)) for error in errors]
    return dataclasses.replace(
        residual,
        left_out_median=quantile(sizes, 0.5),
        left_out_p90=quantile(sizes, 0.9),
        left_out_bias=median_bias(errors),
    )


def _biases(errors: Mapping[Group, Sequence[float]]) -> dict[str, list[float]]:
    """By law, one bias per device: the median over its sources."""
    found: dict[str, dict[str, list[float]]] = {}
    for (device, law, _source), values in errors.items():
        if len(values) >= _LEAST_ROWS or law.startswith(("normalisation", "pooling")):
            found.setdefault(law, {}).setdefault(device, []).append(median_bias(values))
    return {
        law: [statistics.median(values) for values in devices.values()]
        for law, devices in found.items()
    }


def _source_biases(residuals: Sequence[Residual]) -> dict[str, list[float]]:
    """By law, the bias of each source; sources of few rows count only where there are no others."""
    found: dict[str, list[float]] = {}
    for residual in residuals:
        if residual.rows >= _LEAST_ROWS:
            found.setdefault(residual.law, []).append(residual.bias)
    few: dict[str, list[float]] = {}
    for residual in residuals:
        if residual.law not in found:
            few.setdefault(residual.law, []).append(residual.bias)
    return found | few


def _by_law(biases: Mapping[str, Sequence[float]], prior: float) -> dict[str, float]:
    return {
        law: root_mean_square(biases[law], prior=prior) for law in sorted(LAWS) if law in biases
    }


def _with_kin(spreads: Mapping[str, float]) -> dict[str, float]:
    """Spreads of all laws: of those without measurements from the laws that they are like."""
    found = dict(spreads)
    for law in order(LAWS):
        if law not in found:
            kin = KIN.get(law)
            near = found.get(kin.law, _UNKNOWN) if kin is not None else _UNKNOWN
            found[law] = math.hypot(near, kin.spread if kin is not None else 0.0)
    return dict(sorted(found.items()))


def _machine(residuals: Sequence[Residual]) -> float:
    """1 sigma between sources of the same device, over matmuls: what no law can know."""
    groups: dict[tuple[str, str], list[float]] = {}
    for residual in residuals:
        if residual.law.startswith("matmul/") and residual.rows >= _LEAST_ROWS:
            groups.setdefault((residual.device, residual.law), []).append(residual.bias)
    variances = [statistics.variance(group) for group in groups.values() if len(group) > 1]
    return math.sqrt(statistics.fmean(variances)) if variances else 0.08
