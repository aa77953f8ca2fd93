"""The calibration of a device from its benchmarks: its data sheet, its laws, where it is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from bsprof.accounting.work import WorkClass
from bsprof.calibrate.benchmark import CPU
from bsprof.calibrate.fit import KernelRow, fit_device
from bsprof.calibrate.fit.processor import ProcessorRow, best_cache_bytes, fit_laws
from bsprof.calibrate.measured import Measured
from bsprof.calibrate.rows import HostCosts, host_costs, kernel_rows, processor_rows
from bsprof.calibrate.run import capability_of
from bsprof.errors import FitError, UnknownDevice
from bsprof.hardware.catalogue import find_device
from bsprof.hardware.processors import processor_key
from bsprof.predict.roofline.processor import OPTIMIZER_CALL
from bsprof.predict.roofline.processor_laws import CALL, MEMORY, PAGES
from bsprof.records import DeviceSnapshot, DeviceSpec, Quantity
from bsprof.records.calibration import (
    Calibration,
    Ceiling,
    Coefficient,
    DeviceCalibration,
    LawTerms,
)
from bsprof.store.folder import slug

_Row = KernelRow | ProcessorRow

MEASURED = "measured by `bsprof calibrate`"
_LEAST_FLOPS = 2e7
"""Products below say little of a ceiling."""
_PROCESSOR_SPREAD = 0.09
"""1 sigma of log time of one shared processor between minutes (see `bsprof.measure.pacer`)."""
_ERROR = 0.05

_ARCHITECTURES: Mapping[tuple[int, int], str] = {
    (6, 0): "pascal",
    (7, 0): "volta",
    (7, 5): "turing",
    (8, 0): "ampere",
    (8, 6): "ampere",
    (8, 9): "ada",
    (9, 0): "hopper",
    (10, 0): "blackwell",
    (12, 0): "blackwell",
}


def device_name(device: DeviceSnapshot) -> str:
    """The name that a device is calibrated under: the catalogue's, else one made of its own.

    Raises:
        CalibrationError: the catalogue cannot be read.
    """
    if device.kind == CPU:
        return processor_key(device)
    try:
        return _in_catalogue(device).name
    except UnknownDevice:
        return slug(f"{device.name} {device.compute_units}")


def calibration_of(measured: Measured, base: Calibration | None) -> DeviceCalibration:
    """What predictions need of the device.

    Args:
        measured: Its benchmarks.
        base: What is known of other devices; not used for a processor.

    Raises:
        FitError: too little was measured.
    """
    costs = host_costs(measured)
    if measured.device.kind == CPU:
        return _of_processor(measured, processor_rows(measured), costs)
    name = device_name(measured.device)
    rows = kernel_rows(measured, name)
    try:
        spec, known = _in_catalogue(measured.device), True
    except UnknownDevice:
        spec, known = _unknown_gpu(measured.device, name, rows), False
    found = fit_device(
        rows,
        base,
        spec,
        launch_s=costs.launch_s,
        host_call_s=costs.call_s,
        host_backward_call_s=costs.backward_call_s,
        sources=tuple(_sources(measured)),
    )
    return found if known else replace(found, spec=spec)


def _of_processor(
    measured: Measured, rows: Sequence[ProcessorRow], costs: HostCosts
) -> DeviceCalibration:
    flops = _product_rates(rows)
    streams = _stream_rates(rows)
    if not flops or not streams:
        raise FitError(
            f"cannot calibrate {measured.device.name}",
            found="no matrix product or no elementwise operator was timed",
            next_step="give it more time, on a machine that does nothing else",
        )
    cache = best_cache_bytes(rows)
    spec = _processor(measured.device, flops, max(streams), cache)
    laws = {**fit_laws(rows, cache, spec.name), **dict(_own_laws(measured, costs))}
    return DeviceCalibration(
        device=spec.name,
        spec=spec,
        flops_per_s={
            compute: Ceiling(value=rate, spread=_ERROR, measurements=1, source=MEASURED)
            for compute, rate in flops.items()
        },
        bandwidth_bytes_per_s=Ceiling(
            value=max(streams), spread=_ERROR, measurements=1, source=MEASURED
        ),
        launch_s=Coefficient(value=0.0),
        host_call_s=costs.call_s,
        host_backward_call_s=costs.backward_call_s,
        step_s=Coefficient(value=0.0),
        laws=laws,
        machine_spread=_PROCESSOR_SPREAD,
        sources=tuple(_sources(measured)),
    )


def _own_laws(measured: Measured, costs: HostCosts) -> Iterator[tuple[str, LawTerms]]:
    """Prices that no operator has: of an optimizer's calls, and of fresh memory."""
    name = device_name(measured.device)
    if costs.optimizer_call_s is not None:
        terms = {CALL: costs.optimizer_call_s}
        yield OPTIMIZER_CALL, LawTerms(terms=terms, rows=1, devices=(name,))
    price = _page_price(measured)
    if price is not None:
        error = _ERROR * price
        terms = {MEMORY: Coefficient(value=price, error=error)}
        yield PAGES, LawTerms(terms=terms, rows=2, devices=(name,))


def _page_price(measured: Measured) -> float | None:
    """Seconds a byte that the system takes to hand out memory: filling new memory or old."""
    seconds: dict[str, dict[int, float]] = {"copy.made": {}, "copy.filled": {}}
    for timed in measured.timed:
        if timed.benchmark.program in seconds:
            dims = timed.benchmark.dims
            size = 4 * dims["rows"] * dims["columns"]
            seconds[timed.benchmark.program][size] = measured.seconds(timed)
    both = seconds["copy.made"].keys() & seconds["copy.filled"].keys()
    if not both:
        return None
    size = max(both)
    return max(0.0, seconds["copy.made"][size] - seconds["copy.filled"][size]) / size


def _product_rates(rows: Sequence[_Row]) -> dict[str, float]:
    best: dict[str, float] = {}
    for row in rows:
        work = row.work
        if work.work_class is WorkClass.MATMUL and work.flops >= _LEAST_FLOPS:
            best[work.compute] = max(best.get(work.compute, 0.0), work.flops / row.seconds)
    return dict(sorted(best.items()))


def _stream_rates(rows: Sequence[_Row]) -> list[float]:
    """Bytes a second of copies and sums of arrays of the largest size."""
    plain = [r for r in rows if r.work.name in ("aten.copy_", "aten.add")]
    most = max((row.work.bytes for row in plain), default=0)
    return [row.work.bytes / row.seconds for row in plain if row.work.bytes >= most / 4]


def _processor(
    device: DeviceSnapshot, flops: Mapping[str, float], bandwidth: float, cache: float
) -> DeviceSpec:
    """A processor as the catalogue would describe it, from what was measured."""
    threads = device.threads or device.compute_units or 1
    return DeviceSpec(
        name=processor_key(device),
        title=device.name,
        kind=CPU,
        architecture=CPU,
        compute_units=threads,
        nominal_memory_bytes=device.capacity_bytes,
        capacity_bytes=Quantity.exact(device.capacity_bytes),
        flops_per_s=dict(flops),
        bandwidth_bytes_per_s=bandwidth,
        l2_bytes=round(cache),
        sources={
            "flops_per_s": MEASURED,
            "bandwidth_bytes_per_s": MEASURED,
            "l2_bytes": f"{MEASURED}: where elementwise operators become slower",
            "capacity_bytes": "reported by the system",
        },
    )


def _in_catalogue(device: DeviceSnapshot) -> DeviceSpec:
    return find_device(  # what was calibrated before is to be found out anew
        device.name, compute_units=device.compute_units, memory_bytes=device.capacity_bytes
    )


def _unknown_gpu(device: DeviceSnapshot, name: str, rows: Sequence[KernelRow]) -> DeviceSpec:
    """A GPU that the catalogue lacks: its peaks are what was reached here.

    Raises:
        FitError: nothing that shows them was timed.
    """
    flops, streams = _product_rates(rows), _stream_rates(rows)
    if not flops or not streams:
        raise FitError(
            f"cannot calibrate {device.name}",
            found="no matrix product or no copy was timed, and the catalogue lacks the device",
            next_step="give it more time",
        )
    capability = capability_of(device)
    return DeviceSpec(
        name=name,
        title=device.name,
        architecture=_ARCHITECTURES.get(capability or (0, 0), "unknown"),
        compute_capability=capability,
        compute_units=device.compute_units or 1,
        nominal_memory_bytes=device.capacity_bytes,
        capacity_bytes=Quantity.exact(device.capacity_bytes),
        flops_per_s=flops,
        bandwidth_bytes_per_s=max(streams),
        sources={"flops_per_s": MEASURED, "bandwidth_bytes_per_s": MEASURED},
        notes=("not in the catalogue: its peaks are the rates that were reached",),
    )


def _sources(measured: Measured) -> Iterator[str]:
    device, software = measured.device, measured.environment
    threads = f", {device.threads} threads" if device.threads is not None else ""
    yield (
        f"{len(measured.timed)} benchmarks of {device.name}{threads} with torch {software.torch}, "
        f"in {measured.duration_s:.0f} s"
    )
    if measured.skipped:
        yield f"{len(measured.skipped)} benchmarks were left out for lack of time"
    if measured.failed:
        yield f"{len(measured.failed)} benchmarks failed"
