"""Peaks on disk: round trip, identity, and files that cannot be used."""

import dataclasses
import json

import pytest

from bsprof.errors import OutputError
from bsprof.hardware.peaks import device_key, load_peaks, peaks_path, save_peaks
from bsprof.records import DevicePeaks, DeviceSnapshot

GIB = 2**30


@pytest.fixture
def snapshot() -> DeviceSnapshot:
    return DeviceSnapshot(
        kind="cpu",
        name="Fast Processor 9000",
        capacity_bytes=64 * GIB,
        usable_bytes=32 * GIB,
        threads=2,
        compute_units=8,
        details={"cpu_capability": "AVX2"},
    )


@pytest.fixture
def peaks(snapshot) -> DevicePeaks:
    return DevicePeaks(
        flops_per_s={"fp32": 1.5e11, "bf16": 2e10},
        bandwidth_bytes_per_s=2.5e10,
        launch_s=2e-6,
        source="probe",
        device_key=device_key(snapshot, "2.13.0"),
        measured_at="2026-01-01T00:00:00+00:00",
    )


def test_round_trip(tmp_path, peaks):
    path = save_peaks(tmp_path, peaks)
    assert path == peaks_path(tmp_path, peaks.device_key)
    assert path.parent.name == ".peaks"
    assert load_peaks(tmp_path, peaks.device_key) == peaks
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # nothing temporary is left


def test_saving_again_replaces(tmp_path, peaks):
    save_peaks(tmp_path, peaks)
    better = dataclasses.replace(peaks, launch_s=1e-6)
    save_peaks(tmp_path, better)
    assert load_peaks(tmp_path, peaks.device_key) == better


def test_the_same_peaks_are_the_same_bytes(tmp_path, peaks):
    first = save_peaks(tmp_path / "a", peaks).read_bytes()
    assert save_peaks(tmp_path / "b", peaks).read_bytes() == first


def test_key_names_what_changes_the_peaks(snapshot):
    key = device_key(snapshot, "2.13.0")
    assert key == "cpu|Fast Processor 9000|units=8|threads=2|isa=AVX2|torch=2.13.0"
    for change in ({"threads": 4}, {"name": "Other"}, {"compute_units": 4}, {"details": {}}):
        assert device_key(dataclasses.replace(snapshot, **change), "2.13.0") != key
    assert device_key(snapshot, "2.14.0") != key


def test_key_ignores_what_does_not(snapshot):
    other = dataclasses.replace(snapshot, usable_bytes=GIB, uuid="x", other_bytes=5)
    assert device_key(other, "2.13.0") == device_key(snapshot, "2.13.0")


def test_nothing_stored(tmp_path, peaks):
    assert load_peaks(tmp_path / "absent", peaks.device_key) is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema": 2, "peaks": {}}', '{"schema": 1}', '{"schema": 1, "peaks": {}}'],
)
def test_a_file_that_cannot_be_used_counts_as_none(tmp_path, peaks, text):
    save_peaks(tmp_path, peaks).write_text(text)
    assert load_peaks(tmp_path, peaks.device_key) is None


def test_peaks_of_another_device_under_this_name_are_not_used(tmp_path, peaks):
    path = save_peaks(tmp_path, peaks)
    document = json.loads(path.read_text())
    document["peaks"]["device_key"] = "another"
    path.write_text(json.dumps(document))
    assert load_peaks(tmp_path, peaks.device_key) is None


def test_an_unwritable_store_is_said(tmp_path, peaks):
    (tmp_path / ".peaks").write_text("a file, not a folder")
    with pytest.raises(OutputError):
        save_peaks(tmp_path, peaks)
