"""Measured peaks of devices, kept in the store: probed once, reused by every later sweep."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from bsprof.errors import ProfileFormatError
from bsprof.records import DevicePeaks, DeviceSnapshot
from bsprof.records.codec import from_json, to_json
from bsprof.store import atomic_write


def device_key(device: DeviceSnapshot, torch_version: str) -> str:
    """What peaks are kept under: the device and everything that changes its ceilings."""
    threads = f"{device.threads} threads" if device.threads is not None else "accelerator"
    return " | ".join((device.kind, device.name, threads, f"torch {torch_version}"))


def peaks_path(store: Path, key: str) -> Path:
    """The file of a device's peaks."""
    return store / ".peaks" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def load_peaks(store: Path, key: str) -> DevicePeaks | None:
    """The peaks kept under that key; None when there are none, or none that can be read."""
    try:
        peaks = from_json(DevicePeaks, json.loads(peaks_path(store, key).read_bytes()))
    except (OSError, ValueError, ProfileFormatError):
        return None  # probed again: it costs seconds, and nothing else depends on the old ones
    return peaks if peaks.device_key == key else None


def save_peaks(store: Path, peaks: DevicePeaks) -> None:
    """Keep the peaks under their own key.

    Raises:
        OutputError: the store cannot be written.
    """
    text = json.dumps(to_json(peaks), sort_keys=True, indent=1) + "\n"
    atomic_write(peaks_path(store, peaks.device_key), text.encode())
