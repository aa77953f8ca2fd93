"""Fits the laws of a processor: prices of counts, not negative, from its own rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bsprof.accounting.work import Work, WorkClass
from bsprof.predict.cost.caches import beyond
from bsprof.predict.roofline.processor_laws import HALF, SPREAD, counts_of, law_names
from bsprof.records.calibration import Coefficient, LawTerms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

CLOCK_S = 1e-6
"""Times are not told from each other below this: rows are weighted by time plus this."""
CACHES = tuple(2**n * 2**20 for n in range(8))
"""Sizes of a last cache that are tried: 1 to 128 MiB."""
LEAST_ROWS = 4
"""Of a law, to have a say in the size of the cache."""
_USUAL_CACHE_BYTES = 16 * 2**20
_STREAMING = (WorkClass.ELEMENTWISE, WorkClass.COPY)
_MOST_ERROR = 1.0
"""Of a logarithm: one disturbed row is not to decide on a spread or on a cache."""
_UNKNOWN_SPREAD = 0.3
"""Of a law with as many prices as rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorRow:
    """One timed work.

    Attributes:
        work: What ran, again and again on the same tensors.
        seconds: Of a call, beyond those of the smallest call.
        footprint_bytes: Of the tensors.
    """

    work: Work
    seconds: float
    footprint_bytes: int

    def counts(self, cache_bytes: float) -> Mapping[str, float]:
        """What its law prices: of its tensors a cache holds what is not beyond it."""
        size = self.footprint_bytes
        cold = round(size * beyond(size, cache_bytes))
        return counts_of(replace(self.work, memory_bytes=cold))


def fit_laws(rows: Iterable[ProcessorRow], cache_bytes: float, device: str) -> dict[str, LawTerms]:
    """Every law that has rows: of operators, and of classes, which stand in for other operators.

    Args:
        rows: Of all laws.
        cache_bytes: Of the last cache.
        device: That they were timed on.
    """
    by_name: dict[str, list[ProcessorRow]] = {}
    for row in rows:
        for name in dict.fromkeys((law_names(row.work)[0], *_class_laws(row.work))):
            by_name.setdefault(name, []).append(row)
    return {
        name: fit_law(members, cache_bytes, device) for name, members in sorted(by_name.items())
    }


def best_cache_bytes(rows: Sequence[ProcessorRow]) -> float:
    """The size of cache that explains elementwise operators and copies best."""
    by_law: dict[str, list[ProcessorRow]] = {}
    for row in rows:
        if row.work.work_class in _STREAMING:
            by_law.setdefault(law_names(row.work)[0], []).append(row)
    chosen = [members for members in by_law.values() if len(members) >= LEAST_ROWS]
    if not chosen:
        return float(_USUAL_CACHE_BYTES)

    def misfit(cache_bytes: float) -> float:
        return sum(_Fit(members, cache_bytes).total_error for members in chosen)

    return float(min(CACHES, key=misfit))


def fit_law(rows: Sequence[ProcessorRow], cache_bytes: float, device: str) -> LawTerms:
    """The prices of one law: least squares of relative errors, none negative."""
    fit = _Fit(rows, cache_bytes)
    terms = {
        name: Coefficient(value=float(price), error=float(error))
        for name, price, error in zip(fit.names, fit.prices, fit.errors(), strict=True)
    }
    terms[SPREAD] = Coefficient(value=fit.spread)
    return LawTerms(terms=terms, rows=len(rows), devices=(device,))


_PLAIN = frozenset(
    {"add", "mul", "sub", "div", "neg", "relu", "threshold_backward", "masked_fill", "hardtanh"}
)
"""Elementwise operators that stand for those that are not timed: they cost their bytes."""


def _class_laws(work: Work) -> tuple[str, ...]:
    """The law that stands in for operators of the class that are not timed."""
    half = HALF if work.compute in ("bf16", "fp16") else ""
    name = work.name.rpartition(".")[2]
    if work.work_class is WorkClass.ELEMENTWISE and name not in _PLAIN:
        return ()
    return (f"{work.work_class.value}{half}",)


class _Fit:
    """Prices of one law; relative errors count, none is negative."""

    def __init__(self, rows: Sequence[ProcessorRow], cache_bytes: float) -> None:
        import numpy as np
        from scipy.optimize import nnls

        counts = [row.counts(cache_bytes) for row in rows]
        # Few rows do not tell many prices apart: the first ones are what matters most.
        self.names = list(counts[0])[: max(1, len(rows) - 1)]
        self._seconds = np.array([max(row.seconds, 0.0) for row in rows])
        self._weights = 1.0 / (self._seconds + CLOCK_S)
        table = np.array([[c[name] for name in self.names] for c in counts])
        self._scale = np.maximum(np.abs(table).max(axis=0), 1e-300)
        self._weighted = table * self._weights[:, None] / self._scale
        found, _residual = nnls(self._weighted, self._seconds * self._weights)
        self._found: FloatArray = np.asarray(found, dtype=np.float64)
        self._fitted: FloatArray = table @ (self._found / self._scale)

    @property
    def prices(self) -> FloatArray:
        """Seconds for one of each count."""
        prices: FloatArray = self._found / self._scale
        return prices

    @property
    def freedom(self) -> int:
        """Rows beyond prices that are not zero."""
        return len(self._seconds) - int((self._found > 0).sum())

    def errors(self) -> FloatArray:
        """Standard errors of the prices that are not zero; a price at zero has none."""
        import numpy as np

        used = self._found > 0
        errors = np.zeros_like(self._found)
        if not used.any() or self.freedom < 1:
            return errors
        weighted = self._weighted[:, used]
        residual = self._seconds * self._weights - weighted @ self._found[used]
        variance = float(residual @ residual) / self.freedom
        covariance = variance * np.linalg.pinv(weighted.T @ weighted)
        errors[used] = np.sqrt(np.maximum(0.0, np.diag(covariance))) / self._scale[used]
        return errors

    @property
    def logarithms(self) -> list[float]:
        """Of measured over fitted seconds, row by row, no further than `_MOST_ERROR` off."""
        pairs = zip(self._seconds, self._fitted, strict=True)
        found = (math.log((true + CLOCK_S) / (guess + CLOCK_S)) for true, guess in pairs)
        return [max(-_MOST_ERROR, min(_MOST_ERROR, value)) for value in found]

    @property
    def total_error(self) -> float:
        """Sum of the sizes of the logarithms."""
        return sum(map(abs, self.logarithms))

    @property
    def spread(self) -> float:
        """1 sigma of them, for the prices that they were spent on."""
        if self.freedom < 1:
            return _UNKNOWN_SPREAD
        return math.sqrt(sum(x * x for x in self.logarithms) / self.freedom)
