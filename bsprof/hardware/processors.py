"""The name that a processor is calibrated under. No data sheet describes processors here."""

from __future__ import annotations

from bsprof.records import DeviceSnapshot
from bsprof.store.folder import device_slug


def processor_key(device: DeviceSnapshot) -> str:
    """A processor with as many threads as torch computes with: `cpu-amd-epyc-2-threads`."""
    return f"{device_slug(device)}-{device.threads or 1}-threads"
