"""Ceilings of devices from published maxima and from the fastest rows of the kernel files."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bsprof.accounting.work import WorkClass
from bsprof.calibrate.fit.names import CATALOGUE_NAMES, COMPUTE
from bsprof.calibrate.fit.rows import KernelRow
from bsprof.calibrate.fit.solver import solve
from bsprof.calibrate.fit.sources.table import lines_of
from bsprof.predict.roofline.ceilings import expected_share
from bsprof.predict.roofline.families import ROOT, family_of, line_of
from bsprof.predict.roofline.groups import MULTIPLIERS
from bsprof.predict.roofline.shape import misalignment
from bsprof.records import DeviceSpec
from bsprof.records.calibration import Ceiling, CeilingLaw, Coefficient

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

LEAST_SPREAD = 0.04
"""1 sigma between cards of one node, at least (stas00/ml-engineering: 5 % and more)."""
SINGLE_SPREAD = 0.08
"""Of a ceiling that one source measured."""
_LEAST_FLOPS = 2e10
_LEAST_BYTES = 6e7
_CROOKED = 0.05
"""What odd dimensions cost fp32, which NeuSight's random sizes nearly all have: 18.4 against 19.0
TFLOP/s on an A100 (AutoHeuristic)."""
_CACHES = 3
"""Elementwise works of so many times the second-level cache say what the memory does."""
_LARGE = 4096
_TYPES = ("fp32", "tf32", "bf16", "fp16")
_PUBLISHED = ("mamf", "large_matmul", "gemm", "gemm_8192", "large_linear")
_FAMILY_SPREAD = 0.12
"""1 sigma of the logarithm of a family's factor, before data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maximum:
    """One source's best rate of a device, in FLOP/s or bytes/s.

    Attributes:
        device: Catalogue name.
        compute: Compute type, or empty for memory.
        rate: Per second.
        source: Who measured it.
    """

    device: str
    compute: str
    rate: float
    source: str


def published_maxima(folder: Path) -> list[Maximum]:
    """Largest matmuls and bandwidths that others published, one entry per source."""
    found: list[Maximum] = []
    need = ("gpu", "op", "dtype", "m", "tflops", "source")
    for line in lines_of(folder / "gemm_conv_published_peaks.csv", need):
        device, compute = CATALOGUE_NAMES.get(line["gpu"]), COMPUTE.get(line["dtype"])
        is_large = not line["m"] or float(line["m"]) >= _LARGE or line["op"] == "mamf"
        emulated = line["dtype"] == "bfloat16" and line["op"] == "large_matmul"
        if device is None or compute not in _TYPES or line["op"] not in _PUBLISHED or not is_large:
            continue
        if emulated and float(line["tflops"]) < 15:
            continue
        found.append(
            Maximum(
                device=device,
                compute=compute,
                rate=float(line["tflops"]) * 1e12,
                source=line["source"].split(" (")[0],
            )
        )
    return found


def published_bandwidths(folder: Path) -> list[Maximum]:
    """Bandwidths of large copies: gpu-benches, and what the specifications collect."""
    found: list[Maximum] = []
    best: dict[str, float] = {}
    for line in lines_of(folder / "gpubenches_stream.csv", ("gpu", "op", "gbps")):
        device = CATALOGUE_NAMES.get(line["gpu"])
        if device is not None and line["op"] in ("stream_scale", "stream_triad"):
            best[device] = max(best.get(device, 0.0), float(line["gbps"]) * 1e9)
    found += [
        Maximum(device=device, compute="", rate=rate, source="gpu-benches")
        for device, rate in best.items()
    ]
    for line in lines_of(folder / "bandwidth_published.csv", ("gpu", "what", "gbps", "source")):
        device = CATALOGUE_NAMES.get(line["gpu"])
        if device is not None and line["what"] == "dram_read_or_triad":
            found.append(
                Maximum(
                    device=device,
                    compute="",
                    rate=float(line["gbps"]) * 1e9,
                    source=line["source"].split(",")[0],
                )
            )
    return found


def kernel_maxima(rows: Sequence[KernelRow], devices: Mapping[str, DeviceSpec]) -> list[Maximum]:
    """The fastest large products, and elementwise works far above the cache, of each source."""
    rates: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        work = row.work
        if work.work_class is WorkClass.MATMUL and work.flops >= _LEAST_FLOPS:
            if work.compute in _TYPES and min(work.m, work.n, work.k) >= 512:
                lost = misalignment(work)
                if lost and work.compute != "fp32":
                    continue
                key = (row.device, work.compute, row.source)
                rate = work.flops / row.seconds * (1.0 + _CROOKED * lost)
                rates.setdefault(key, []).append(rate)
        elif work.work_class is WorkClass.ELEMENTWISE and work.bytes >= max(
            _LEAST_BYTES, _CACHES * (devices[row.device].l2_bytes or 0)
        ):
            rates.setdefault((row.device, "", row.source), []).append(work.bytes / row.seconds)
    return [
        Maximum(device=device, compute=compute, rate=_high(values), source=source)
        for (device, compute, source), values in rates.items()
    ]


def _high(values: list[float]) -> float:
    """The 95th percentile: the maximum of thousands would be luck."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]


def ceilings(
    maxima: Sequence[Maximum], devices: Mapping[str, DeviceSpec]
) -> dict[str, dict[str, Ceiling]]:
    """By device and compute type (empty: memory): the median over sources, and their spread.

    Both half types share their measurements, since their multipliers are the same. A type that the
    device emulates has no ceiling of its own.
    """
    by_source: dict[tuple[str, str], dict[str, list[float]]] = {}
    for maximum in maxima:
        native = ("", *devices[maximum.device].flops_per_s)
        for compute in [c for c in _alike(maximum.compute) if c in native]:
            sources = by_source.setdefault((maximum.device, compute), {})
            sources.setdefault(maximum.source, []).append(math.log(maximum.rate))
    found: dict[str, dict[str, Ceiling]] = {}
    for (device, compute), sources in sorted(by_source.items()):
        values = [statistics.median(logs) for logs in sources.values()]
        spread = SINGLE_SPREAD
        if len(values) > 1:
            spread = max(LEAST_SPREAD, statistics.stdev(values))
        found.setdefault(device, {})[compute] = Ceiling(
            value=math.exp(statistics.median(values)),
            spread=spread,
            measurements=len(values),
            source="; ".join(sorted(sources)),
        )
    return found


def _alike(compute: str) -> tuple[str, ...]:
    return ("bf16", "fp16") if compute in ("bf16", "fp16") else (compute,)


def ceiling_laws(
    measured: Mapping[str, Mapping[str, Ceiling]], devices: Mapping[str, DeviceSpec]
) -> tuple[dict[str, CeilingLaw], dict[str, dict[str, Coefficient]]]:
    """What to expect of devices that nobody measured.

    Returns:
        The law by multipliers, and factors on it by family and multipliers.
    """
    laws: dict[str, CeilingLaw] = {}
    factors: dict[str, dict[str, Coefficient]] = {}
    for multipliers, half_density in (("half", 4e12), ("tf32", 2e12), ("fp32", 0.25e12)):
        points = _points(measured, devices, multipliers)
        if not points:
            continue
        law, by_family = _fit_ceiling_law(points, devices, half_density)
        laws[multipliers] = law
        for family, factor in by_family.items():
            factors.setdefault(family, {})[multipliers] = factor
    return laws, factors


def _points(
    measured: Mapping[str, Mapping[str, Ceiling]],
    devices: Mapping[str, DeviceSpec],
    multipliers: str,
) -> list[tuple[str, str, float]]:
    """Device, compute type and log of measured over data sheet; one type stands for both halves."""
    found = []
    for name, types in measured.items():
        device = devices.get(name)
        if device is None:
            continue
        for compute, ceiling in types.items():
            if MULTIPLIERS.get(compute) != multipliers or compute not in device.flops_per_s:
                continue
            if compute == "bf16" and "fp16" in device.flops_per_s:
                continue
            found.append((name, compute, math.log(ceiling.value / device.flops_per_s[compute])))
    return found


def _fit_ceiling_law(
    points: Sequence[tuple[str, str, float]],
    devices: Mapping[str, DeviceSpec],
    half_density: float,
) -> tuple[CeilingLaw, dict[str, Coefficient]]:
    import numpy as np

    families = sorted(
        {f for name, _c, _s in points for f in line_of(family_of(devices[name]))} - {ROOT}
    )
    measured = np.array([share for _name, _compute, share in points])
    member = np.array(
        [[f in line_of(family_of(devices[name])) for f in families] for name, _c, _s in points],
        dtype=float,
    ).reshape(len(points), len(families))

    def law_at(place: FloatArray) -> CeilingLaw:
        return CeilingLaw(
            share=Coefficient(value=float(np.exp(place[0]))),
            half_density=Coefficient(value=float(np.exp(place[1]))),
            deviation=0.0,
        )

    def expected(place: FloatArray) -> FloatArray:
        law = law_at(place)
        shares = [expected_share(devices[name], compute, law) for name, compute, _s in points]
        return np.log(shares)

    def model(place: FloatArray) -> tuple[FloatArray, Callable[[], FloatArray]]:
        base = expected(place)

        def slopes() -> FloatArray:
            columns = []
            for i in range(2):
                moved = place.copy()
                moved[i] += 1e-4
                columns.append((expected(moved) - base) / 1e-4)
            return np.concatenate([np.array(columns).T, member], axis=1)

        return base + member @ place[2:] - measured, slopes

    prior = np.concatenate([[math.log(1.05), math.log(half_density)], np.zeros(len(families))])
    spread = np.concatenate([[0.1, 0.5], np.full(len(families), _FAMILY_SPREAD)])
    found = solve(model, np.ones(len(points)), prior, spread)
    errors = np.sqrt(np.diag(found.covariance))
    share, half = np.exp(found.parameters[:2])
    deviation = float(np.sqrt(np.mean(found.residuals**2)))
    law = CeilingLaw(
        share=Coefficient(value=float(share), error=float(share * errors[0])),
        half_density=Coefficient(value=float(half), error=float(half * errors[1])),
        deviation=max(LEAST_SPREAD, deviation),
    )
    by_family = {}
    for family in families:
        line = [2 + families.index(name) for name in line_of(family) if name != ROOT]
        log = float(sum(found.parameters[i] for i in line))
        variance = float(sum(found.covariance[i, j] for i in line for j in line))
        factor = math.exp(log)
        by_family[family] = Coefficient(value=factor, error=factor * math.sqrt(max(0.0, variance)))
    return law, by_family
