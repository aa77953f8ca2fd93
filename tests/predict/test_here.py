"""The device of this machine: of the catalogue, or as it was calibrated."""

from __future__ import annotations

import dataclasses

import pytest

from bsprof.errors import UnknownDevice
from bsprof.hardware.calibration import (
    calibrated_devices,
    device_calibration_path,
    save_calibration,
)
from bsprof.hardware.processors import processor_key
from bsprof.predict import here
from bsprof.records import DeviceSnapshot, DeviceSpec, Quantity
from bsprof.records.calibration import DeviceCalibration

GIB = 2**30
CPU = DeviceSnapshot(
    kind="cpu", name="Some 9", capacity_bytes=16 * GIB, usable_bytes=5 * GIB, threads=2
)
GPU = DeviceSnapshot(
    kind="cuda",
    name="NVIDIA GeForce RTX 4090",
    capacity_bytes=round(23.5 * GIB),
    usable_bytes=23 * GIB,
    compute_units=128,
)


def spec(name: str, title: str, kind: str, units: int) -> DeviceSpec:
    return DeviceSpec(
        name=name,
        title=title,
        kind=kind,
        architecture=kind,
        compute_units=units,
        nominal_memory_bytes=16 * GIB,
        capacity_bytes=Quantity.exact(16 * GIB),
        flops_per_s={"fp32": 1e11},
        bandwidth_bytes_per_s=1e10,
    )


@pytest.fixture
def calibrate(tmp_path, monkeypatch):
    monkeypatch.setenv("BSPROF_CALIBRATION", str(tmp_path))

    def write(made: DeviceSpec) -> None:
        path = device_calibration_path(tmp_path, made.name)
        save_calibration(path, DeviceCalibration(device=made.name, spec=made))

    return write


@pytest.fixture
def machine(monkeypatch):
    """`machine(snapshot)`: what a worker finds here."""

    def has(snapshot: DeviceSnapshot) -> None:
        monkeypatch.setattr(here.TraceWorker, "device", lambda _self, _name: snapshot)

    return has


def test_a_processor_is_known_once_it_was_calibrated(calibrate, machine):
    machine(CPU)
    with pytest.raises(UnknownDevice) as caught:
        here.device_here("cpu")
    assert "bsprof calibrate --device cpu" in caught.value.next_step
    calibrate(spec(processor_key(CPU), CPU.name, "cpu", 2))
    found = here.device_here("cpu")
    assert found.name == "cpu-some-9-2-threads"
    assert found.capacity_bytes == Quantity.exact(5 * GIB)  # what may be used now


def test_other_threads_are_another_processor(calibrate, machine):
    machine(dataclasses.replace(CPU, threads=1))
    calibrate(spec(processor_key(CPU), CPU.name, "cpu", 2))
    with pytest.raises(UnknownDevice) as caught:
        here.device_here("cpu")
    assert "calibrated: cpu-some-9-2-threads" in caught.value.found


def test_an_accelerator_is_the_catalogues(calibrate, machine):  # noqa: ARG001
    machine(GPU)
    assert here.device_here("cuda").name == "rtx-4090"


def test_an_unknown_accelerator_is_known_once_it_was_calibrated(calibrate, machine):
    machine(dataclasses.replace(GPU, name="NVIDIA X1", compute_units=9))
    with pytest.raises(UnknownDevice):
        here.device_here("cuda")
    calibrate(spec("nvidia-x1-9", "NVIDIA X1", "cuda", 9))
    assert here.device_here("cuda").name == "nvidia-x1-9"


def test_calibrated_devices_are_sorted_and_only_those_with_a_data_sheet(calibrate, tmp_path):
    calibrate(spec("b", "B", "cpu", 1))
    calibrate(spec("a", "A", "cpu", 1))
    path = device_calibration_path(tmp_path, "h100-80gb-sxm")
    save_calibration(path, DeviceCalibration(device="h100-80gb-sxm"))
    assert [device.name for device in calibrated_devices()] == ["a", "b"]


def test_the_folder_beside_the_store_is_read_too(tmp_path, monkeypatch):
    monkeypatch.setenv("BSPROF_STORE", str(tmp_path / "profiles"))
    assert calibrated_devices() == ()
    made = spec("a", "A", "cpu", 1)
    path = device_calibration_path(tmp_path / "calibration", "a")
    save_calibration(path, DeviceCalibration(device="a", spec=made))
    assert calibrated_devices() == (made,)
