"""Calibration files: round trip, the user's own over the shipped ones, and broken ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import bsprof
from bsprof.errors import CalibrationError
from bsprof.hardware.calibration import (
    device_calibration_path,
    load_calibration,
    load_device_calibration,
    packaged_calibration,
    save_calibration,
    shipped_calibration,
    with_device,
)
from bsprof.records.calibration import Ceiling, Coefficient, DeviceCalibration

DEVICE = DeviceCalibration(
    device="rtx-4090",
    flops_per_s={"bf16": Ceiling(value=160e12, spread=0.03, measurements=1, source="here")},
    launch_s=Coefficient(value=2e-6, error=1e-7),
    sources=("measured on this machine",),
)


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BSPROF_CALIBRATION", str(tmp_path))
    return tmp_path


def test_round_trip(tmp_path):
    file = device_calibration_path(tmp_path, "rtx-4090")
    save_calibration(file, DEVICE)
    assert load_device_calibration(file) == DEVICE
    first = file.read_bytes()
    save_calibration(file, load_device_calibration(file))
    assert file.read_bytes() == first


def test_the_whole_calibration_round_trips(tmp_path):
    save_calibration(tmp_path / "roofline.json", packaged_calibration())
    assert load_calibration(tmp_path / "roofline.json") == packaged_calibration()


def test_a_device_of_the_user_s_own_wins(own):
    save_calibration(device_calibration_path(own, "rtx-4090"), DEVICE)
    found = shipped_calibration()
    assert found.devices["rtx-4090"] == DEVICE
    assert found.devices["l40s"] == packaged_calibration().devices["l40s"]


def test_a_new_file_is_seen_at_once(own):
    assert shipped_calibration().devices["rtx-4090"] != DEVICE
    save_calibration(device_calibration_path(own, "rtx-4090"), DEVICE)
    assert shipped_calibration().devices["rtx-4090"] == DEVICE


def test_a_whole_file_of_the_user_s_own_replaces_the_shipped_one(own):
    shipped = packaged_calibration()
    save_calibration(own / "roofline.json", with_device(shipped, DEVICE))
    assert shipped_calibration() == with_device(shipped, DEVICE)


def test_a_missing_folder_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("BSPROF_CALIBRATION", str(tmp_path / "none"))
    with pytest.raises(CalibrationError) as caught:
        shipped_calibration()
    assert str(tmp_path / "none") in str(caught.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "no JSON"),
        ("[]", "format None"),
        ('{"schema": 99}', "format 99"),
        ('{"schema": 1}', "missing field DeviceCalibration.device"),
        ('{"schema": 1, "device": "x", "speed": 3}', "unknown field DeviceCalibration.speed"),
        (
            '{"schema": 1, "device": "x", "launch_s": {"value": -1.0}}',
            "DeviceCalibration.launch_s is not valid",
        ),
        ('{"schema": 1, "device": 4}', "DeviceCalibration.device should be"),
    ],
)
def test_broken_files_are_explained(tmp_path, text, found):
    file = tmp_path / "device.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CalibrationError) as caught:
        load_device_calibration(file)
    assert str(file) in str(caught.value)
    assert found in str(caught.value)


def test_an_unreadable_file_is_explained(tmp_path):
    with pytest.raises(CalibrationError, match="cannot read"):
        load_calibration(tmp_path)


def test_predicting_from_it_loads_neither_numpy_nor_torch():
    script = (
        "import sys; from bsprof.predict.roofline import Roofline; "
        "from bsprof.hardware.catalogue import find_device; "
        "from bsprof.accounting.work import Work, WorkClass; "
        "r = Roofline.of(find_device('rtx-4090')); "
        "r.seconds(Work(work_class=WorkClass.COPY, compute='fp32', bytes=1)); "
        "print([n for n in ('numpy', 'scipy', 'torch', 'pandas') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "PYTHONPATH": str(Path(bsprof.__file__).parent.parent)},
    )
    assert done.stdout.strip() == "[]"


def test_the_shipped_file_has_sorted_keys():
    from bsprof.store.data import data_folder

    text = (data_folder("calibration_data") / "roofline.json").read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"
