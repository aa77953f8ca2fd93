"""What is known of a device of this machine: its catalogue entry, or its own calibration."""

from __future__ import annotations

from dataclasses import replace

from bsprof.errors import DeviceUnavailable, MeasurementError
from bsprof.hardware.known import device_of
from bsprof.measure.crew import Trouble
from bsprof.predict.worker import TraceWorker
from bsprof.records import DeviceSpec, Quantity


def device_here(name: str) -> DeviceSpec:
    """A device of this machine, to predict for.

    The capacity of a processor is what this process may use now.

    Args:
        name: `cpu`, `cuda` or `cuda:N`.

    Raises:
        DeviceUnavailable: there is no such device here.
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
    spec = device_of(found)
    if spec.kind == "cpu":
        return replace(spec, capacity_bytes=Quantity.exact(found.usable_bytes))
    return spec
