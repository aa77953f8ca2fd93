"""What is known of a device of this machine: its catalogue entry, or its own calibration."""

from __future__ import annotations

from dataclasses import replace

from bsprof.errors import DeviceUnavailable, MeasurementError, UnknownDevice
from bsprof.hardware.calibration import calibrated_devices
from bsprof.hardware.catalogue import find_device
from bsprof.hardware.processors import processor_key
from bsprof.measure.crew import Trouble
from bsprof.predict.worker import TraceWorker
from bsprof.records import DeviceSnapshot, DeviceSpec, Quantity


def device_here(name: str) -> DeviceSpec:
    """A device of this machine, to predict for.

    An accelerator is looked up in the catalogue by name, number of compute units and memory
    together: cards that share a name differ in these. What the catalogue lacks, and a processor,
    must have been calibrated. The capacity of a processor is what this process may use now.

    Args:
        name: `cpu`, `cuda` or `cuda:N`.

    Raises:
        DeviceUnavailable: there is no such device here, or it was never calibrated.
        UnknownDevice: the catalogue does not have it, nor was it calibrated.
    """
    with TraceWorker() as worker:
        found = worker.device(name)
    if isinstance(found, Trouble):
        if isinstance(found.error, DeviceUnavailable):
            raise DeviceUnavailable(
                f"cannot predict for this machine's {name}",
                found=found.error.found,
                next_step="name the device to predict for: --device rtx-4090; "
                "`bsprof devices` lists them",
            )
        raise found.error or MeasurementError(
            f"cannot look at {name}", found=found.failure.reason, next_step="see `bsprof doctor`"
        )
    return _processor(found) if found.kind == "cpu" else _accelerator(found)


def _accelerator(found: DeviceSnapshot) -> DeviceSpec:
    try:
        return find_device(
            found.name, compute_units=found.compute_units, memory_bytes=found.capacity_bytes
        )
    except UnknownDevice:
        for spec in calibrated_devices():
            if spec.title == found.name and spec.compute_units == found.compute_units:
                return spec
        raise


def _processor(found: DeviceSnapshot) -> DeviceSpec:
    wanted = processor_key(found)
    for spec in calibrated_devices():
        if spec.name == wanted:
            return replace(spec, capacity_bytes=Quantity.exact(found.usable_bytes))
    known = ", ".join(spec.name for spec in calibrated_devices())
    raise DeviceUnavailable(
        f"cannot predict for this machine's processor, {wanted}",
        found=f"calibrated: {known}" if known else "no processor was calibrated here",
        next_step="run `bsprof calibrate --device cpu`, a minute of measurements; or name a "
        "device to predict for: --device rtx-4090",
    )
