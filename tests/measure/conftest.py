"""A store that already holds peaks for every device, so that no test pays for the probe."""

import pytest

from bsprof.hardware import peaks
from bsprof.records import DevicePeaks


@pytest.fixture
def peaks_store(tmp_path, monkeypatch):
    """A store whose probe was run before, whatever the device is called here."""
    store = tmp_path / "store"

    def load_or_plant(folder, key):
        if peaks.load_peaks(folder, key) is None:
            planted = DevicePeaks(
                flops_per_s={"fp32": 1e12, "bf16": 1e12, "fp16": 1e12},
                bandwidth_bytes_per_s=1e11,
                launch_s=1e-6,
                source="probe",
                device_key=key,
            )
            peaks.save_peaks(folder, planted)
        found = peaks.load_peaks(folder, key)
        assert found is not None
        return found

    monkeypatch.setattr("bsprof.measure.sweep.load_peaks", load_or_plant)
    return store
