"""One law fitted to rows of many devices: terms of the root, and how each family departs from it.

log term of a row = root + departures of the families on its device's line + nothing else, so
families with data keep what they show, those without take their relative's, and a left-out family
is predicted by the same rule. Each source (file and machine) has a scale of its own, so that one
slow machine does not bend the shape, and where its times hold a host's cost, a floor of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bsprof.calibrate.fit.rows import KernelRow, stacked
from bsprof.calibrate.fit.solver import Solution, solve
from bsprof.predict.roofline.families import ROOT, line_of
from bsprof.predict.roofline.laws import Law, TrafficLaw
from bsprof.predict.roofline.limits import Limits
from bsprof.predict.roofline.shape import Shape
from bsprof.records.calibration import Coefficient, LawTerms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

SOURCE_SPREAD = 0.08
"""1 sigma of the logarithm of a source's scale, before data: machines with the same device differ
by 7 % (A100) to 20 % (H100)."""
DEVICE_SPREAD = 0.10
"""The same of a device's: some throttle, some have ceilings that no kernel of theirs reaches."""
MEMORY_DEVICE_SPREAD = 0.04
"""The same where memory is all that a law knows: ceilings of memory come from such kernels."""
COPIED = 0.1
"""Expected part of the copies that a source may hold that it really holds."""
COPY_SHARE = 0.7
"""Of the bandwidth that copies inside a measured time reach."""
SHORT_S = 40e-6
"""Shorter kernels weigh less, by the square root: steps are made of the longer ones."""
FLOOR_S = 10e-6
"""Expected fixed cost of a source whose times hold one; it may well be three times that."""
FLOOR_SPREAD = 1.0
SOURCE_ROWS = 120.0
"""Rows that a source of one device counts as at most: its rows share a machine and a method."""
_STEP = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What a fit needs of a device.

    Attributes:
        family: Its family.
        flops_per_s: Ceiling by compute type.
        bytes_per_s, l2_bytes, units: As in `Limits`.
        launch_s: Launch floor.
    """

    family: str
    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    l2_bytes: float
    units: float
    launch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFit:
    """A fitted law.

    Attributes:
        terms: By family that has rows, and the root: all terms, departures added up.
        device_scales: By device: measured over predicted time.
        source_scales: By source: log of measured over predicted time, its error.
        floors: By source that holds a fixed cost: seconds.
        residuals: log(predicted / measured) of the rows, in their order, with source scales.
        unscaled: The same without source scales; with device scales and floors.
    """

    terms: Mapping[str, LawTerms]
    device_scales: Mapping[str, Coefficient]
    source_scales: Mapping[str, tuple[float, float]]
    floors: Mapping[str, float]
    residuals: FloatArray
    unscaled: FloatArray


class _Problem:
    """Rows of a law as arrays, and the model over the parameter vector."""

    def __init__(
        self,
        law: Law,
        rows: Sequence[KernelRow],
        devices: Mapping[str, DeviceFacts],
        prior: Mapping[str, Coefficient] | None,
        departures: Mapping[str, Mapping[str, float]],
    ) -> None:
        import numpy as np

        self.law = law
        self.names = tuple(law.terms)
        self.shape: Shape = stacked([row.work for row in rows])
        facts = [devices[row.device] for row in rows]
        self.limits = Limits(
            flops_per_s=np.array(
                [f.flops_per_s[r.work.compute] for f, r in zip(facts, rows, strict=True)]
            ),
            bytes_per_s=np.array([f.bytes_per_s for f in facts]),
            l2_bytes=np.array([f.l2_bytes for f in facts]),
            units=np.array([f.units for f in facts]),
        )
        self.launch = np.array(
            [f.launch_s * r.work.launches for f, r in zip(facts, rows, strict=True)]
        )
        self.measured = np.log([row.seconds for row in rows])
        known = {f.family for f in facts} | set(departures)
        self.families = sorted({name for family in known for name in line_of(family)} - {ROOT})
        self.member = np.array(
            [[name in line_of(f.family) for name in self.families] for f in facts], dtype=float
        ).reshape(len(rows), len(self.families))
        self.sources = sorted({row.source for row in rows})
        self.source = np.array([self.sources.index(row.source) for row in rows])
        self.devices = sorted({row.device for row in rows})
        self.device = np.array([self.devices.index(row.device) for row in rows])
        self.extra = np.array(
            [r.extra_bytes / (COPY_SHARE * f.bytes_per_s) for f, r in zip(facts, rows, strict=True)]
        )
        self.floored = sorted({row.source for row in rows if row.has_floor})
        self.floor = np.array([self.floored.index(r.source) if r.has_floor else -1 for r in rows])
        self.low = np.log([law.terms[name].low for name in self.names])
        self.high = np.log([law.terms[name].high for name in self.names])
        self.copying = sorted({row.source for row in rows if row.extra_bytes})
        self.copies = np.array(
            [self.copying.index(r.source) if r.extra_bytes else -1 for r in rows]
        )
        self._priors(prior, departures)

    def _priors(
        self,
        prior: Mapping[str, Coefficient] | None,
        departures: Mapping[str, Mapping[str, float]],
    ) -> None:
        import numpy as np

        terms = self.law.terms
        centre, spread = [], []
        for name in self.names:
            known = prior.get(name) if prior is not None else None
            if known is None or known.value <= 0:
                centre.append(math.log(terms[name].default))
                spread.append(terms[name].spread)
            else:
                centre.append(math.log(known.value))
                spread.append(max(0.02, known.error / known.value))
        transfer = [terms[name].transfer for name in self.names]
        is_memory = isinstance(self.law, TrafficLaw)
        device_spread = MEMORY_DEVICE_SPREAD if is_memory else DEVICE_SPREAD
        self.prior = np.concatenate(
            [
                centre,
                [
                    math.log(departures.get(family, {}).get(name, 1.0))
                    for family in self.families
                    for name in self.names
                ],
                np.zeros(len(self.devices) + len(self.sources)),
                np.full(len(self.floored), math.log(FLOOR_S)),
                np.full(len(self.copying), math.log(COPIED)),
            ]
        )
        self.spread = np.concatenate(
            [
                spread,
                np.tile(transfer, len(self.families)),
                np.full(len(self.devices), device_spread),
                np.full(len(self.sources), SOURCE_SPREAD),
                np.full(len(self.floored), FLOOR_SPREAD),
                np.full(len(self.copying), 1.5),
            ]
        )

    def split(self, place: FloatArray) -> list[FloatArray]:
        """Root terms, departures (families, terms), scales of devices and sources, floors, copies.

        All are logarithms.
        """
        t, f = len(self.names), len(self.families)
        sizes = (t, f * t, len(self.devices), len(self.sources), len(self.floored))
        ends = tuple(itertools.accumulate(sizes))
        parts = [place[a:b] for a, b in zip((0, *ends), (*ends, len(place)), strict=True)]
        parts[1] = parts[1].reshape(f, t)
        return parts

    def model(self, place: FloatArray) -> tuple[FloatArray, Callable[[], FloatArray]]:
        """Residuals log(predicted / measured), and what makes their Jacobian."""
        import numpy as np

        root, departures, device_scales, scales, floors, copies = self.split(place)
        logs = root[None, :] + self.member @ departures
        inside = (logs > self.low) & (logs < self.high)
        logs = np.clip(logs, self.low, self.high)
        own = self._seconds(logs)
        scale = np.exp(scales[self.source] + device_scales[self.device])
        floor = np.where(self.floor >= 0, np.exp(np.append(floors, 0.0)[self.floor]), 0.0)
        extra = np.exp(np.append(copies, 0.0)[self.copies]) * self.extra
        total = own * scale + floor + extra

        def slopes() -> FloatArray:
            by_term = np.empty((len(total), len(self.names)))
            for i in range(len(self.names)):
                moved = logs.copy()
                moved[:, i] += _STEP
                by_term[:, i] = (self._seconds(moved) - own) / _STEP
            by_term *= (scale / total)[:, None] * inside
            rows, f = len(total), len(self.families)
            by_family = (self.member[:, :, None] * by_term[:, None, :]).reshape(
                rows, f * len(self.names)
            )
            by_device = np.zeros((rows, len(self.devices)))
            by_device[np.arange(rows), self.device] = own * scale / total
            by_scale = np.zeros((rows, len(self.sources)))
            by_scale[np.arange(rows), self.source] = own * scale / total
            by_floor = np.zeros((rows, len(self.floored)))
            has = self.floor >= 0
            by_floor[np.flatnonzero(has), self.floor[has]] = floor[has] / total[has]
            by_copies = np.zeros((rows, len(self.copying)))
            has = self.copies >= 0
            by_copies[np.flatnonzero(has), self.copies[has]] = extra[has] / total[has]
            return np.concatenate(
                [by_term, by_family, by_device, by_scale, by_floor, by_copies], axis=1
            )

        return np.log(total) - self.measured, slopes

    def _seconds(self, logs: FloatArray) -> FloatArray:
        import numpy as np

        values = np.exp(logs)
        terms: dict[str, Any] = {name: values[:, i] for i, name in enumerate(self.names)}
        total: FloatArray = self.law.parts(self.shape, self.limits, terms).total_s
        return np.asarray(total + self.launch, dtype=np.float64)


def fit_law(
    law: Law,
    rows: Sequence[KernelRow],
    devices: Mapping[str, DeviceFacts],
    *,
    prior: Mapping[str, Coefficient] | None = None,
    departures: Mapping[str, Mapping[str, float]] | None = None,
    source_rows: float = SOURCE_ROWS,
) -> LawFit:
    """A law fitted to rows, all of which follow it.

    Args:
        law: Its form.
        rows: At least one.
        devices: Facts of every device that the rows name.
        prior: Expected terms with their errors; None takes the law's own.
        departures: Expected factors between a family and its relative, by family and term.
        source_rows: See `SOURCE_ROWS`.
    """
    import numpy as np

    problem = _Problem(law, rows, devices, prior, departures or {})
    groups = [(row.device, row.source) for row in rows]
    counts = {group: groups.count(group) for group in set(groups)}
    weights = np.array([min(1.0, source_rows / counts[group]) for group in groups])
    weights *= np.sqrt([min(1.0, row.seconds / SHORT_S) for row in rows])
    solution = solve(problem.model, weights, problem.prior, problem.spread)
    return _answer(problem, solution, rows, devices)


def _answer(
    problem: _Problem,
    solution: Solution,
    rows: Sequence[KernelRow],
    devices: Mapping[str, DeviceFacts],
) -> LawFit:
    import numpy as np

    root, departures, device_scales, scales, floors, _copies = problem.split(solution.parameters)
    count = len(problem.names)
    found: dict[str, LawTerms] = {}
    measured: dict[str, set[str]] = {}
    behind: dict[str, int] = {}
    for row in rows:
        family = devices[row.device].family
        measured.setdefault(family, set()).add(row.device)
        behind[family] = behind.get(family, 0) + 1
    for family in (ROOT, *problem.families):
        line = [problem.families.index(name) for name in line_of(family) if name != ROOT]
        places = [slice(0, count), *(slice(count * (i + 1), count * (i + 2)) for i in line)]
        logs = np.clip(
            root + sum((departures[i] for i in line), np.zeros(count)), problem.low, problem.high
        )
        variance = sum(
            (np.diag(solution.covariance[a, b]) for a in places for b in places), np.zeros(count)
        )
        of_terms = np.sqrt(np.maximum(variance, 0.0))
        found[family] = LawTerms(
            terms={
                name: Coefficient(
                    value=float(math.exp(logs[i])), error=float(math.exp(logs[i]) * of_terms[i])
                )
                for i, name in enumerate(problem.names)
            },
            rows=behind.get(family, 0),
            devices=tuple(sorted(measured.get(family, ()))),
            inherited_from=line_of(family)[1] if family != ROOT else "",
        )
    first = count * (1 + len(problem.families))
    offset = first + len(problem.devices)
    errors = np.sqrt(np.diag(solution.covariance))
    source_scales = {
        name: (
            float(scales[i]),
            float(errors[offset + i]),
        )
        for i, name in enumerate(problem.sources)
    }
    zero_scales = solution.parameters.copy()
    zero_scales[offset : offset + len(problem.sources)] = 0.0
    unscaled, _jacobian = problem.model(zero_scales)
    return LawFit(
        terms=found,
        device_scales={
            name: Coefficient(
                value=math.exp(device_scales[i]),
                error=math.exp(device_scales[i]) * float(errors[first + i]),
            )
            for i, name in enumerate(problem.devices)
        },
        source_scales=source_scales,
        floors={name: math.exp(floors[i]) for i, name in enumerate(problem.floored)},
        residuals=solution.residuals,
        unscaled=unscaled,
    )
