"""Ceilings and launch floors of measured devices, and what to expect of all others."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping

from bsprof.calibrate.fit.ceilings import ceiling_laws, ceilings, kernel_maxima
from bsprof.calibrate.fit.law_fit import DeviceFacts
from bsprof.calibrate.fit.measurements import Measurements
from bsprof.predict.roofline.ceilings import bandwidth_ceiling, compute_ceiling, launch_floor
from bsprof.predict.roofline.families import RELATIVES, ROOT, family_of, line_of
from bsprof.records import DeviceSpec
from bsprof.records.calibration import (
    CALIBRATION_SCHEMA,
    Calibration,
    Ceiling,
    Coefficient,
    DeviceCalibration,
    FamilyCalibration,
    HostCalibration,
    Spreads,
)

HOST = HostCalibration(
    host_call_s=Coefficient(value=9e-6, error=5e-6),
    host_backward_call_s=Coefficient(value=7e-6, error=4e-6),
    step_s=Coefficient(value=3e-4, error=3e-4),
)
"""A usual host. `a * 1.2` in a loop costs 4 to 12 us on good hosts and 29 us on a slow one, an
operator of a whole layer 15 to 90 us (`launch_floor`, `mli_layer_batch_sweeps`); backward calls
run without Python."""


def facts_of(device: DeviceSpec, calibration: Calibration) -> DeviceFacts:
    """What a fit of laws needs of a device, from ceilings that are known or expected."""
    types = ("fp64", "fp32", "tf32", "bf16", "fp16")
    return DeviceFacts(
        family=family_of(device),
        flops_per_s={t: compute_ceiling(device, t, calibration).value for t in types},
        bytes_per_s=bandwidth_ceiling(device, calibration).value,
        l2_bytes=float(device.l2_bytes or 4 * 2**20),
        units=float(device.compute_units),
        launch_s=launch_floor(device, calibration).value,
    )


def without_laws(measurements: Measurements, specs: Mapping[str, DeviceSpec]) -> Calibration:
    """A calibration without laws: ceilings, launch floors, and what to expect of other devices."""
    maxima = [*measurements.maxima, *kernel_maxima(measurements.rows, specs)]
    known = ceilings([m for m in maxima if m.device in specs], specs)
    laws, factors = ceiling_laws(known, specs)
    floors = {name: floor for name, floor in measurements.floors.items() if name in specs}
    families = {}
    for family in (ROOT, *sorted(RELATIVES)):
        families[family] = FamilyCalibration(
            laws={},
            ceiling_factors=factors.get(family, {}),
            bandwidth_share=_typical_bandwidth(family, known, specs),
            launch_s=_typical_floor(family, floors, specs),
        )
    devices = {}
    for name in sorted(set(known) | set(floors)):
        types = dict(known.get(name, {}))
        bandwidth = types.pop("", None)
        floor = floors.get(name)
        devices[name] = DeviceCalibration(
            device=name,
            flops_per_s=types,
            bandwidth_bytes_per_s=bandwidth,
            launch_s=None if floor is None else Coefficient(value=floor, error=0.15 * floor),
        )
    return Calibration(
        schema=CALIBRATION_SCHEMA,
        families=families,
        devices=devices,
        ceilings=laws,
        host=HOST,
        spreads=Spreads(measured={}, unmeasured={}, foreign={"": 0.3}, machine=0.08),
    )


def _relatives(family: str, names: Iterable[str], specs: Mapping[str, DeviceSpec]) -> list[str]:
    """Devices of the family, or of the nearest one up its line that has any of them."""
    for relative in line_of(family):
        found = [n for n in names if relative in line_of(family_of(specs[n]))]
        if found:
            return found
    return []


def _typical_bandwidth(
    family: str,
    known: Mapping[str, Mapping[str, Ceiling]],
    specs: Mapping[str, DeviceSpec],
) -> Coefficient:
    have = [name for name, types in known.items() if "" in types]
    near = _relatives(family, have, specs)
    logs = [math.log(known[name][""].value / specs[name].bandwidth_bytes_per_s) for name in near]
    if not logs:
        return Coefficient(value=0.87, error=0.08)
    value = math.exp(statistics.median(logs))
    spread = max(0.05, statistics.stdev(logs) if len(logs) > 1 else 0.08)
    return Coefficient(value=value, error=value * spread)


def _typical_floor(
    family: str, floors: Mapping[str, float], specs: Mapping[str, DeviceSpec]
) -> Coefficient:
    near = _relatives(family, floors, specs)
    if not near:
        return Coefficient(value=2e-6, error=0.6e-6)
    value = statistics.median(floors[name] for name in near)
    return Coefficient(value=value, error=0.2 * value)
