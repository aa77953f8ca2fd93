"""The calibration of one device from its own rows: ceilings, and terms drawn to what is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bsprof.accounting.work import WorkClass
from bsprof.calibrate.fit.law_fit import DeviceFacts, fit_law
from bsprof.calibrate.fit.rows import KernelRow, by_law
from bsprof.errors import FitError
from bsprof.predict.roofline.ceilings import (
    bandwidth_ceiling,
    compute_ceiling,
    launch_floor,
)
from bsprof.predict.roofline.families import ROOT, family_of
from bsprof.predict.roofline.groups import LAWS
from bsprof.predict.roofline.terms import resolve
from bsprof.records import DeviceSpec
from bsprof.records.calibration import (
    Calibration,
    Ceiling,
    Coefficient,
    DeviceCalibration,
    LawTerms,
)

_HERE = 0.03
"""Spread of ceilings and times on the very machine that was measured, between runs."""
_LEAST_FLOPS = 2e8
_LEAST_BYTES = 1e6
"""Work below is no measurement of a ceiling, wherever larger ones were measured."""
_SMALL_CACHE_BYTES = 4 * 2**20
_STREAMS = (WorkClass.ELEMENTWISE, WorkClass.COPY)


def fit_device(
    rows: Sequence[KernelRow],
    base: Calibration | None,
    device: DeviceSpec,
    *,
    launch_s: Coefficient | None = None,
    host_call_s: Coefficient | None = None,
    host_backward_call_s: Coefficient | None = None,
    step_s: Coefficient | None = None,
    sources: Sequence[str] = (),
) -> DeviceCalibration:
    """The calibration of a device on which rows were measured.

    Ceilings are the best rates among the rows. Terms of every law that has rows are fitted, drawn
    to those of the base where it knows the device's family, else to the laws' own expectations.

    Args:
        rows: Measured on this device; their `device` need not be its name.
        base: What other devices showed; None where nothing may be taken over (a processor).
        device: Of the catalogue, or one made for a processor (kind `cpu`, threads as units).
        launch_s: Measured launch floor; None takes the base's.
        host_call_s, host_backward_call_s, step_s: Measured on this host; None where not.
        sources: Sentences for people, kept with the result.

    Raises:
        FitError: there is no row.
    """
    if not rows:
        raise FitError(
            f"cannot calibrate {device.name}",
            found="no measured operator",
            next_step="measure at least one matmul and one elementwise operator",
        )
    known = base if base is not None else _nothing()
    flops = _compute_ceilings(rows, known, device)
    bandwidth = _bandwidth(rows) or bandwidth_ceiling(device, known)
    launch = launch_s or launch_floor(device, known)
    facts = DeviceFacts(
        family=ROOT,
        flops_per_s={
            compute: (flops.get(compute) or compute_ceiling(device, compute, known)).value
            for compute in sorted({row.work.compute for row in rows} | set(flops))
        },
        bytes_per_s=bandwidth.value,
        l2_bytes=float(device.l2_bytes or _SMALL_CACHE_BYTES),
        units=float(device.compute_units),
        launch_s=launch.value,
    )
    laws: dict[str, LawTerms] = {}
    for name, own in by_law(rows).items():
        own = [
            KernelRow(work=r.work, seconds=r.seconds, device=device.name, source="") for r in own
        ]
        fit = fit_law(LAWS[name], own, {device.name: facts}, prior=_prior(name, known, device))
        laws[name] = LawTerms(
            terms=fit.terms[ROOT].terms,
            rows=len(own),
            devices=(device.name,),
            inherited_from=family_of(device),
        )
    return DeviceCalibration(
        device=device.name,
        spec=device if device.kind == "cpu" else None,
        flops_per_s=flops,
        bandwidth_bytes_per_s=bandwidth,
        launch_s=launch,
        host_call_s=host_call_s,
        host_backward_call_s=host_backward_call_s,
        step_s=step_s,
        laws=laws,
        machine_spread=_HERE,
        sources=tuple(sources),
    )


def _compute_ceilings(
    rows: Sequence[KernelRow], base: Calibration, device: DeviceSpec
) -> dict[str, Ceiling]:
    """Best matmul rate of each compute type; one that only small matmuls measured is left out."""
    best: dict[str, float] = {}
    for row in rows:
        work = row.work
        if work.work_class is WorkClass.MATMUL and work.flops >= _LEAST_FLOPS:
            rate = work.flops / row.seconds
            best[work.compute] = max(best.get(work.compute, 0.0), rate)
    del base, device
    return {
        compute: Ceiling(
            value=rate, spread=_HERE, measurements=1, source="largest matmul rate measured here"
        )
        for compute, rate in sorted(best.items())
    }


def _bandwidth(rows: Sequence[KernelRow]) -> Ceiling | None:
    """Rate of the largest elementwise operators and copies: the smaller ones fit into a cache."""
    streams = sorted(
        (
            (row.work.bytes, row.work.bytes / row.seconds)
            for row in rows
            if row.work.work_class in _STREAMS and row.work.bytes >= _LEAST_BYTES
        ),
        reverse=True,
    )
    if not streams:
        return None
    largest = [rate for size, rate in streams if size >= 0.5 * streams[0][0]]
    return Ceiling(
        value=max(largest),
        spread=_HERE,
        measurements=1,
        source="largest elementwise operators measured here",
    )


def _prior(name: str, base: Calibration, device: DeviceSpec) -> Mapping[str, Coefficient] | None:
    """Terms that the device's family has of the law, each as uncertain as between families."""
    if device.kind == "cpu" or not base.families:
        return None
    found = {}
    known = resolve(name, family_of(device), base).terms
    for key, term in LAWS[name].terms.items():
        value = known[key]
        spread = max(term.transfer, value.error / value.value)
        found[key] = Coefficient(value=value.value, error=value.value * spread)
    return found


def _nothing() -> Calibration:
    """A calibration that knows nothing."""
    from bsprof.records.calibration import HostCalibration, Spreads

    unknown = Coefficient(value=10e-6, error=10e-6)
    return Calibration(
        schema=1,
        families={},
        devices={},
        ceilings={},
        host=HostCalibration(host_call_s=unknown, host_backward_call_s=unknown, step_s=unknown),
        spreads=Spreads(measured={}, unmeasured={}, foreign={}, machine=0.1),
    )
