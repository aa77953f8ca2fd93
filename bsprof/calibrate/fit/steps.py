"""Laws that no kernel file measures on recent devices, adjusted to the times of whole steps.

A step's time says little about any one kernel, so only a few terms of a few laws move, each drawn
to what it was before, and all families that stand below the one that was measured move with it.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from bsprof.accounting.work import Work
from bsprof.calibrate.fit.evaluate import quantile
from bsprof.calibrate.fit.expected import facts_of
from bsprof.calibrate.fit.law_fit import DeviceFacts
from bsprof.calibrate.fit.rows import stacked
from bsprof.calibrate.fit.solver import Solution, solve
from bsprof.errors import FitError
from bsprof.hardware.catalogue import devices as catalogue
from bsprof.predict.roofline.families import RELATIVES, ROOT, line_of
from bsprof.predict.roofline.groups import LAWS, law_name
from bsprof.predict.roofline.limits import Limits
from bsprof.predict.roofline.roofline import Roofline
from bsprof.predict.roofline.terms import resolve
from bsprof.records.calibration import Calibration, Coefficient, LawTerms, Residual

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

_STEP = 1e-4
STEP = "step"
"""Name under which residuals of whole steps are kept beside those of laws."""

ROWS_OF_WEIGHT_ONE = 150.0
"""Steps count as at most so many independent measurements: they share a machine and kernels."""

_SHARES: Mapping[str, float] = {"share": 0.3}
_PRODUCT: Mapping[str, float] = {
    "share": 0.3,
    "edge": 0.6,
    "depth": 0.6,
    "bandwidth_share": 0.2,
    "window": 0.6,
    "winograd": 0.2,
}


def _adjusted() -> dict[str, Mapping[str, float]]:
    found: dict[str, Mapping[str, float]] = {}
    for way in ("forward", "data", "weight"):
        found[f"convolution_{way}/half"] = _PRODUCT
        for layout in ("", "_last"):
            found[f"grouped_{way}{layout}/half"] = {"share": 0.5, "edge": 0.6}
            found[f"depthwise_{way}{layout}/half"] = {"share": 0.5}
    for layout in ("", "_last"):
        found[f"normalisation/batch{layout}"] = _SHARES
        found[f"normalisation_backward/batch{layout}"] = _SHARES
    found["normalisation/group"] = found["normalisation_backward/group"] = _SHARES
    found["layout"] = _SHARES
    for law in ("copy", "elementwise", "reduction", "optimizer_foreach", "pooling"):
        found[law] = {"share": 0.1}
    return found


ADJUSTED: Mapping[str, Mapping[str, float]] = MappingProxyType(_adjusted())
"""Terms that steps may move, by law, each with 1 sigma of the logarithm of its factor. Those of
which no kernel was measured move most; elementwise operators and their kin hardly."""


class Step(Protocol):
    """A measured step: works with counts, its seconds, where it ran, and of which model it is."""

    @property
    def works(self) -> tuple[tuple[Work, int], ...]:
        """Of all its parts, each with how often it comes."""
        ...

    @property
    def seconds(self) -> float:
        """That it took."""
        ...

    @property
    def device(self) -> str:
        """Catalogue name."""
        ...

    @property
    def source(self) -> str:
        """Rows of one source share a machine."""
        ...

    @property
    def model(self) -> str:
        """Rows of one model are judged together."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A measured step; see `Step`."""

    works: tuple[tuple[Work, int], ...]
    seconds: float
    device: str
    source: str
    model: str = ""


def fit_steps(
    rows: Sequence[Step],
    base: Calibration,
    *,
    adjusted: Mapping[str, Mapping[str, float]] = ADJUSTED,
) -> Calibration:
    """The base with terms adjusted so that its rooflines give the steps' seconds.

    Steps should be bound by the device: the host's time is not added. What is left of them is kept
    as residuals of the law `STEP`; their `left_out` values are of models that were left out, one
    half after the other.

    Args:
        rows: Measured steps, of devices of one line of families.
        base: Fitted to kernels.
        adjusted: See `ADJUSTED`.

    Raises:
        FitError: there are no rows.
    """
    if not rows:
        raise FitError(
            "cannot fit whole steps", found="no measured step", next_step="give at least one"
        )
    problem = _Problem(rows, base, adjusted)
    everything = problem.fit([True] * len(rows))
    halves = [_half(row.model) for row in rows]
    errors = [0.0] * len(rows)
    for half in (False, True):
        fitted = problem.fit([h is not half for h in halves])
        left = problem.errors(fitted)
        errors = [left[i] if halves[i] is half else errors[i] for i in range(len(rows))]
    found = problem.applied(everything)
    residuals = _residuals(rows, problem.errors(everything), errors)
    kept = [r for r in base.residuals if r.law != STEP]
    return dataclasses.replace(found, residuals=(*kept, *residuals))


def _half(model: str) -> bool:
    """Which half a model belongs to, by its name alone."""
    return zlib.crc32(model.encode()) % 2 == 1


class _Problem:
    """Steps as arrays of works, law by law, and their seconds over the moved terms."""

    def __init__(
        self,
        rows: Sequence[Step],
        base: Calibration,
        adjusted: Mapping[str, Mapping[str, float]],
    ) -> None:
        import numpy as np

        self.base = base
        specs = {device.name: device for device in catalogue()}
        facts = {row.device: facts_of(specs[row.device], base) for row in rows}
        self.family_of = {name: fact.family for name, fact in facts.items()}
        self.families = tuple(dict.fromkeys(self.family_of.values()))
        self.measured = np.log([row.seconds for row in rows])
        groups: dict[str, list[tuple[int, Work, int]]] = {}
        for i, row in enumerate(rows):
            for work, count in row.works:
                if work.flops or work.bytes:
                    groups.setdefault(law_name(work), []).append((i, work, count))
        rooflines = {name: Roofline.of(specs[name], base) for name in facts}
        self.devices = [row.device for row in rows]
        self.laws = {
            law: _Works(law, entries, self.devices, facts, rooflines)
            for law, entries in sorted(groups.items())
        }
        self.fixed = np.zeros(len(rows))
        for i, row in enumerate(rows):
            roofline = rooflines[row.device]
            self.fixed[i] = sum(
                n * roofline.seconds(w) for w, n in row.works if not (w.flops or w.bytes)
            )
        self.free = [
            (law, term, spread)
            for law in self.laws
            for term, spread in adjusted.get(law, {}).items()
        ]
        for law in sorted(set(self.laws) - {law for law, _term, _spread in self.free}):
            self.fixed += self.laws[law].seconds({}, len(rows))
        self.sources = sorted({row.source for row in rows})
        self.source = np.array([self.sources.index(row.source) for row in rows])

    def fit(self, chosen: Sequence[bool]) -> Solution:
        """Factors (their logarithms), then the sources' scales, from some of the steps."""
        import numpy as np

        counted = sum(chosen)
        weights = np.array(chosen, dtype=float) * min(1.0, ROWS_OF_WEIGHT_ONE / max(1, counted))
        spreads = [spread for _law, _term, spread in self.free]
        prior = np.zeros(len(spreads) + len(self.sources))
        spread = np.array([*spreads, *[self.base.spreads.machine] * len(self.sources)])
        return solve(self._model, weights, prior, spread)

    def errors(self, solution: Solution) -> list[float]:
        """log(predicted / measured) of all steps, without the scales of their sources."""
        import numpy as np

        place = solution.parameters.copy()
        place[len(self.free) :] = 0.0
        return [float(x) for x in np.log(self._seconds(place)) - self.measured]

    def applied(self, solution: Solution) -> Calibration:
        """The base with the fitted factors in every family below the measured ones' oldest."""
        tops = {line_of(family)[-2] if family != ROOT else ROOT for family in self.families}
        moved: dict[str, dict[str, tuple[float, float]]] = {}
        for i, (law, term, _spread) in enumerate(self.free):
            log = float(solution.parameters[i])
            error = math.sqrt(float(solution.covariance[i, i]))
            moved.setdefault(law, {})[term] = (log, error)
        families = {}
        for name, family in self.base.families.items():
            laws = dict(family.laws)
            if tops & set(line_of(name)):
                for law, factors in moved.items():
                    known = laws.get(law) or self._inherited(name, law)
                    here = self.measured_by(name, law)
                    laws[law] = dataclasses.replace(
                        known,
                        terms=_moved(law, known.terms, factors),
                        rows=known.rows + len(here),
                        devices=tuple(sorted({*known.devices, *here})),
                    )
            families[name] = dataclasses.replace(family, laws=laws)
        return dataclasses.replace(self.base, families=families)

    def measured_by(self, family: str, law: str) -> list[str]:
        """Devices of a family, once for every step that has works of a law."""
        places = sorted(set(self.laws[law].step.tolist()))
        return [self.devices[i] for i in places if self.family_of[self.devices[i]] == family]

    def _inherited(self, family: str, law: str) -> LawTerms:
        """Terms that a family has of a law that only its relatives, or its like, know."""
        terms = resolve(law, family, self.base).terms
        return LawTerms(terms=terms, inherited_from=RELATIVES.get(family, ROOT))

    def _seconds(self, place: FloatArray) -> FloatArray:
        total = self.fixed.copy()
        for law, logs in self._logs(place).items():
            total += self.laws[law].seconds(logs, len(total))
        return total

    def _logs(self, place: FloatArray) -> dict[str, dict[str, float]]:
        """Logarithms of the factors on terms, by law and term."""
        found: dict[str, dict[str, float]] = {}
        for i, (law, term, _spread) in enumerate(self.free):
            found.setdefault(law, {})[term] = float(place[i])
        return found

    def _model(self, place: FloatArray) -> tuple[FloatArray, Callable[[], FloatArray]]:
        import numpy as np

        logs = self._logs(place)
        steps = len(self.measured)
        by_law = {law: self.laws[law].seconds(moved, steps) for law, moved in logs.items()}
        total = sum(by_law.values(), self.fixed)
        scales = place[len(self.free) :]

        def slopes() -> FloatArray:
            jacobian = np.zeros((steps, len(place)))
            for i, (law, term, _spread) in enumerate(self.free):
                moved = logs[law] | {term: logs[law][term] + _STEP}
                jacobian[:, i] = (self.laws[law].seconds(moved, steps) - by_law[law]) / _STEP
            jacobian /= total[:, None]
            jacobian[np.arange(steps), len(self.free) + self.source] = 1.0
            return jacobian

        return np.log(total) + scales[self.source] - self.measured, slopes


class _Works:
    """All works of one law, over all steps."""

    def __init__(
        self,
        law: str,
        entries: Sequence[tuple[int, Work, int]],
        devices: Sequence[str],
        facts: Mapping[str, DeviceFacts],
        rooflines: Mapping[str, Roofline],
    ) -> None:
        import numpy as np

        self.law = law
        self.step = np.array([i for i, _work, _count in entries])
        self.count = np.array([count for _i, _work, count in entries], dtype=float)
        self.shape = stacked([work for _i, work, _count in entries])
        own = [facts[devices[i]] for i, _work, _count in entries]
        self.limits = Limits(
            flops_per_s=np.array(
                [f.flops_per_s[e[1].compute] for f, e in zip(own, entries, strict=True)]
            ),
            bytes_per_s=np.array([f.bytes_per_s for f in own]),
            l2_bytes=np.array([f.l2_bytes for f in own]),
            units=np.array([f.units for f in own]),
        )
        resolved = [rooflines[devices[i]].resolved(law) for i, _work, _count in entries]
        self.terms: dict[str, Any] = {
            name: np.array([terms[name] for terms, _scale in resolved]) for name in LAWS[law].terms
        }
        self.scale = np.array([scale for _terms, scale in resolved])
        self.launch = np.array(
            [f.launch_s * e[1].launches for f, e in zip(own, entries, strict=True)]
        )

    def seconds(self, logs: Mapping[str, float], steps: int) -> FloatArray:
        """Seconds of every step in works of this law, with terms moved by these logarithms."""
        import numpy as np

        terms = dict(self.terms)
        for name, log in logs.items():
            term = LAWS[self.law].terms[name]
            terms[name] = np.clip(terms[name] * math.exp(log), term.low, term.high)
        total = LAWS[self.law].parts(self.shape, self.limits, terms).total_s + self.launch
        weights = self.count * self.scale * total
        found = np.bincount(self.step, weights=weights, minlength=steps)
        return found.astype(np.float64)


def _moved(
    law: str, terms: Mapping[str, Coefficient], factors: Mapping[str, tuple[float, float]]
) -> dict[str, Coefficient]:
    found = dict(terms)
    for name, (log, error) in factors.items():
        term = LAWS[law].terms[name]
        known = terms.get(name, Coefficient(value=term.default))
        value = min(max(known.value * math.exp(log), term.low), term.high)
        found[name] = Coefficient(value=value, error=value * error)
    return found


def _residuals(
    rows: Sequence[Step], errors: Sequence[float], left_out: Sequence[float]
) -> list[Residual]:
    groups: dict[tuple[str, str], list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault((row.device, row.source), []).append(i)
    found = []
    for (device, source), places in sorted(groups.items()):
        sizes = [abs(math.expm1(errors[i])) for i in places]
        apart = [abs(math.expm1(left_out[i])) for i in places]
        found.append(
            Residual(
                device=device,
                law=STEP,
                source=source,
                rows=len(places),
                median=quantile(sizes, 0.5),
                p90=quantile(sizes, 0.9),
                bias=-statistics.median(errors[i] for i in places),
                left_out_median=quantile(apart, 0.5),
                left_out_p90=quantile(apart, 0.9),
                left_out_bias=-statistics.median(left_out[i] for i in places),
            )
        )
    return found
