"""The peaks that a probe found, kept beside the profiles so that each device is probed once."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from bsprof.errors import ProfileFormatError
from bsprof.records import DevicePeaks, DeviceSnapshot
from bsprof.records.codec import from_json, to_json
from bsprof.store.files import atomic_write

PEAKS_FOLDER = ".peaks"
# 1: first format. A file of another format is measured anew, never lifted.
PEAKS_SCHEMA = 1


def device_key(snapshot: DeviceSnapshot, torch_version: str) -> str:
    """The identity that peaks are kept under: equal keys are expected to reach equal peaks.

    Kind, name, compute units, threads, instruction set and torch version; not the memory, not
    the uuid: two cards of one model share their peaks.
    """
    parts = [snapshot.kind, snapshot.name]
    if snapshot.compute_units is not None:
        parts.append(f"units={snapshot.compute_units}")
    if snapshot.threads is not None:
        parts.append(f"threads={snapshot.threads}")
    capability = snapshot.details.get("cpu_capability")
    if capability is not None:
        parts.append(f"isa={capability}")
    parts.append(f"torch={torch_version}")
    return "|".join(parts)


def peaks_path(store: Path, key: str) -> Path:
    """Where the peaks of a device key lie in a store."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return store / PEAKS_FOLDER / f"{digest}.json"


def load_peaks(store: Path, key: str) -> DevicePeaks | None:
    """The stored peaks of a device; None where there are none that can be used.

    A broken or differently versioned file counts as none: probing takes seconds and replaces it.
    """
    try:
        document = json.loads(peaks_path(store, key).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("schema") != PEAKS_SCHEMA:
        return None
    try:
        peaks = from_json(DevicePeaks, document.get("peaks"))
    except ProfileFormatError:
        return None
    return peaks if peaks.device_key == key else None


def save_peaks(store: Path, peaks: DevicePeaks) -> Path:
    """Stores the peaks of a device, replacing older ones; returns the file.

    Raises:
        OutputError: the file cannot be written.
    """
    path = peaks_path(store, peaks.device_key)
    document = {"schema": PEAKS_SCHEMA, "peaks": to_json(peaks)}
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    atomic_write(path, text.encode())
    return path
