"""Families: devices whose kernels behave alike, and which family stands in for another."""

from __future__ import annotations

from collections.abc import Mapping

from bsprof.records import DeviceSpec

ROOT = ""
"""The family of devices of which nothing is known."""

RELATIVES: Mapping[str, str] = {
    "pascal": ROOT,
    "volta": ROOT,
    "turing": "volta",
    "ampere": ROOT,  # A100 and A30: large caches, capability 8.0
    "ampere 8.6": "ampere",  # everything else of that name: small caches, half the tensor cores
    "ada": "ampere 8.6",
    "hopper": "ampere",
    "blackwell": "hopper",  # B200: capability 10.0
    "blackwell 12.0": "ada",  # GeForce and workstation: tensor cores as Ada's
    "cdna1": ROOT,
    "cdna2": "cdna1",
    "cdna3": "cdna2",
    "rdna3": ROOT,
    "cpu": ROOT,
}
"""From a family to the one whose coefficients its own are drawn to, and stand for where it has
none."""

_BY_CAPABILITY = {("ampere", (8, 6)): "ampere 8.6", ("blackwell", (12, 0)): "blackwell 12.0"}


def family_of(device: DeviceSpec) -> str:
    """The family of a device; its architecture's name where that is a family, else the root."""
    if device.kind == "cpu":
        return "cpu"
    architecture = device.architecture.lower()
    if device.compute_capability is not None:
        key = (architecture, device.compute_capability)
        architecture = _BY_CAPABILITY.get(key, architecture)
    return architecture if architecture in RELATIVES else ROOT


def line_of(family: str) -> tuple[str, ...]:
    """The family, then the ones that stand in for it, up to the root."""
    line = [family]
    while line[-1] != ROOT:
        line.append(RELATIVES.get(line[-1], ROOT))
    return tuple(line)
