"""What is known of a device that reported itself: its catalogue entry, or its own calibration."""

from __future__ import annotations

from bsprof.errors import UnknownDevice
from bsprof.hardware.calibration import calibrated_devices
from bsprof.hardware.catalogue import find_device
from bsprof.hardware.processors import processor_key
from bsprof.records import DeviceSnapshot, DeviceSpec


def device_of(snapshot: DeviceSnapshot) -> DeviceSpec:
    """The device that a snapshot is of.

    An accelerator is looked up in the catalogue by name, number of compute units and memory
    together: cards that share a name differ in these. What the catalogue lacks, and a processor,
    must have been calibrated.

    Raises:
        UnknownDevice: the catalogue does not have it, nor was it calibrated.
        CalibrationError: a file of devices cannot be understood.
    """
    return _processor(snapshot) if snapshot.kind == "cpu" else _accelerator(snapshot)


def _accelerator(snapshot: DeviceSnapshot) -> DeviceSpec:
    name = str(snapshot.details.get("catalogue") or snapshot.name)
    try:
        return find_device(
            name, compute_units=snapshot.compute_units, memory_bytes=snapshot.capacity_bytes
        )
    except UnknownDevice:
        for spec in calibrated_devices():
            if spec.title == snapshot.name and spec.compute_units == snapshot.compute_units:
                return spec
        raise


def _processor(snapshot: DeviceSnapshot) -> DeviceSpec:
    wanted = processor_key(snapshot)
    calibrated = calibrated_devices()
    for spec in calibrated:
        if spec.name == wanted:
            return spec
    known = ", ".join(spec.name for spec in calibrated)
    raise UnknownDevice(
        f"cannot predict for the processor {wanted}",
        found=f"calibrated: {known}" if known else "no processor was calibrated",
        next_step="run `bsprof calibrate --device cpu` there, a minute of measurements; or name a "
        "device to predict for: --device rtx-4090",
    )
