"""The catalogue's entry for the accelerator of this machine."""

from __future__ import annotations

from bsprof.errors import DeviceUnavailable, MeasurementError
from bsprof.hardware.catalogue import find_device
from bsprof.measure.crew import Trouble
from bsprof.predict.worker import TraceWorker
from bsprof.records import DeviceSpec


def device_here(name: str) -> DeviceSpec:
    """The catalogue's entry for a device of this machine.

    It is looked up by name, number of compute units and memory together: cards that share a name
    differ in these.

    Args:
        name: `cuda` or `cuda:N`.

    Raises:
        DeviceUnavailable: there is no such device here.
        UnknownDevice: the catalogue does not have it.
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
    return find_device(
        found.name, compute_units=found.compute_units, memory_bytes=found.capacity_bytes
    )
