"""A store that already holds peaks for every device, so that no test pays for the probe."""

import json

import pytest

from bsprof.hardware import peaks
from bsprof.records import DevicePeaks
from bsprof.records.codec import to_json


@pytest.fixture
def peaks_store(tmp_path, monkeypatch):
    """A store whose probe was run before, whatever the device is called here."""
    store = tmp_path / "store"
    original = peaks.load_peaks

    def load_or_plant(folder, key):
        if original(folder, key) is None:
            planted = DevicePeaks(
                flops_per_s={"fp32": 1e12, "bf16": 1e12, "fp16": 1e12},
                bandwidth_bytes_per_s=1e11,
                launch_s=1e-6,
                source="probe",
                device_key=key,
            )
            path = peaks.peaks_path(folder, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(to_json(planted)))
        return original(folder, key)

    monkeypatch.setattr("bsprof.measure.sweep.load_peaks", load_or_plant)
    return store
