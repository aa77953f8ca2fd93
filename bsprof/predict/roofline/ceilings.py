"""The rates that a device reaches at best: measured, or its data sheet's times what is typical."""

from __future__ import annotations

import math

from bsprof.predict.roofline.families import family_of, line_of
from bsprof.predict.roofline.groups import MULTIPLIERS
from bsprof.records import DeviceSpec
from bsprof.records.calibration import (
    Calibration,
    Ceiling,
    CeilingLaw,
    Coefficient,
    DeviceCalibration,
    FamilyCalibration,
)

_USUAL_SHARE = Coefficient(value=0.8, error=0.12)
_USUAL_CROWDING = 0.2
"""Density over half density of a device whose power limit is not known."""
_USUAL_BANDWIDTH_SHARE = Coefficient(value=0.87, error=0.08)
_USUAL_LAUNCH = Coefficient(value=2e-6, error=0.6e-6)
"""Where no family knows better."""

_STANDS_FOR = {"fp16": ("bf16",), "bf16": ("fp16",), "tf32": ("fp32",), "fp8": ("bf16", "fp16")}
"""Compute types that a device without one runs instead, at their rate."""
_DOUBLE_RATE_FAMILIES = frozenset({"ampere", "hopper", "volta", "pascal", "blackwell"})


def compute_ceiling(device: DeviceSpec, compute: str, calibration: Calibration) -> Ceiling:
    """FLOP/s of large matmuls of a compute type.

    Measured on this device; else the data sheet's, times how this device's other measured types
    relate to theirs, or else times what is typical of its family.
    """
    own = calibration.devices.get(device.name, DeviceCalibration(device=device.name))
    if compute in own.flops_per_s:
        return own.flops_per_s[compute]
    sheet = device.flops_per_s.get(compute)
    if sheet is None:
        return _instead(device, compute, calibration)
    share, spread, donor = _typical(device, compute, calibration)
    return Ceiling(
        value=sheet * share, spread=spread, source=f"data sheet times {share:.2f}, {donor}"
    )


def bandwidth_ceiling(device: DeviceSpec, calibration: Calibration) -> Ceiling:
    """Bytes per second of large elementwise operators: measured, or typical of the family."""
    own = calibration.devices.get(device.name)
    if own is not None and own.bandwidth_bytes_per_s is not None:
        return own.bandwidth_bytes_per_s
    for name, family in _families(device, calibration):
        share = family.bandwidth_share
        return Ceiling(
            value=device.bandwidth_bytes_per_s * share.value,
            spread=share.error / share.value,
            source=f"data sheet times {share.value:.2f}, typical of {name or 'all devices'}",
        )
    share = _USUAL_BANDWIDTH_SHARE
    return Ceiling(
        value=device.bandwidth_bytes_per_s * share.value,
        spread=share.error / share.value,
        source=f"data sheet times {share.value:.2f}, a guess",
    )


def launch_floor(device: DeviceSpec, calibration: Calibration) -> Coefficient:
    """Device seconds that one kernel takes at least, back to back."""
    own = calibration.devices.get(device.name)
    if own is not None and own.launch_s is not None:
        return own.launch_s
    for _name, family in _families(device, calibration):
        return family.launch_s
    return _USUAL_LAUNCH


def _typical(
    device: DeviceSpec, compute: str, calibration: Calibration
) -> tuple[float, float, str]:
    """Share of the data sheet, its spread, and whose it is."""
    multipliers = MULTIPLIERS.get(compute, "fp32")
    law = calibration.ceilings.get(multipliers)
    if law is None:
        return _USUAL_SHARE.value, _USUAL_SHARE.error / _USUAL_SHARE.value, "a guess"
    share = expected_share(device, compute, law)
    for name, family in _families(device, calibration):
        factor = family.ceiling_factors.get(multipliers)
        if factor is not None:
            spread = math.hypot(law.deviation, factor.error / factor.value)
            return share * factor.value, spread, f"typical of {name or 'all devices'} at its power"
    return share, law.deviation, "typical of devices with its power"


def expected_share(device: DeviceSpec, compute: str, law: CeilingLaw) -> float:
    """Share of the data sheet's rate that `CeilingLaw` gives a device."""
    sheet = device.flops_per_s[compute]
    if device.power_w is None:
        return law.share.value / (1.0 + _USUAL_CROWDING)
    return law.share.value / (1.0 + sheet / device.power_w / law.half_density.value)


def _families(device: DeviceSpec, calibration: Calibration) -> list[tuple[str, FamilyCalibration]]:
    """Known families of a device, the nearest first."""
    return [
        (name, calibration.families[name])
        for name in line_of(family_of(device))
        if name in calibration.families
    ]


def _instead(device: DeviceSpec, compute: str, calibration: Calibration) -> Ceiling:
    """The ceiling of the multipliers that stand in for a type that the device has none for."""
    if compute == "fp64":
        part = 0.5 if family_of(device) in _DOUBLE_RATE_FAMILIES else 1 / 32
        like, slower = "fp32", part
    elif compute == "bf16" and (device.compute_capability or (8, 0)) < (8, 0):
        like, slower = "fp32", 0.7  # emulated: 9.9 of 13.6 TFLOP/s on a V100S (community table)
    else:
        others = [t for t in _STANDS_FOR.get(compute, ()) if t in device.flops_per_s]
        like, slower = (others or ["fp32"])[0], 1.0
    if like == compute or like not in device.flops_per_s:
        rates = device.flops_per_s
        return Ceiling(
            value=0.8 * max(rates.values()), spread=0.5, source="of another type, a guess"
        )
    base = compute_ceiling(device, like, calibration)
    return Ceiling(
        value=base.value * slower,
        spread=max(base.spread, 0.1),
        source=f"{slower:g} of {like}: {base.source}" if slower != 1.0 else base.source,
    )
