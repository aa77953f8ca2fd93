"""Fits the laws of a processor: prices of counts, not negative, from its own rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from bsprof.accounting.work import Work, WorkClass
from bsprof.calibrate.fit.rows import KernelRow
from bsprof.predict.roofline.processor_laws import SPREAD, counts_of, law_names
from bsprof.records.calibration import Coefficient, LawTerms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

CACHES = tuple(2**n * 2**20 for n in range(7))
"""Sizes of a last cache that are tried: 1 to 64 MiB."""
_STREAMING = (WorkClass.ELEMENTWISE, WorkClass.COPY)
CLOCK_S = 1e-6
"""Times are not told from each other below this: rows are weighted by time plus this."""
LEAST_ROWS = 3


def fit_laws(rows: Iterable[KernelRow], cache_bytes: float) -> dict[str, LawTerms]:
    """Every law that has rows: of operators, of classes, and of what stands in for others.

    Args:
        rows: Seconds beyond those of the smallest call.
        cache_bytes: Of the last cache.
    """
    by_name: dict[str, list[KernelRow]] = {}
    for row in rows:
        own, *_others = law_names(row.work)
        by_name.setdefault(own, []).append(row)
        shared = _class_law(row.work)
        if shared is not None and shared != own:
            by_name.setdefault(shared, []).append(row)
    return {name: fit_law(members, cache_bytes) for name, members in sorted(by_name.items())}


def best_cache_bytes(rows: Sequence[KernelRow]) -> float:
    """The size of cache that explains elementwise operators and copies best."""
    streams = [row for row in rows if row.work.work_class in _STREAMING]
    by_law: dict[str, list[KernelRow]] = {}
    for row in streams:
        by_law.setdefault(law_names(row.work)[0], []).append(row)
    chosen = [members for members in by_law.values() if len(members) > LEAST_ROWS]
    if not chosen:
        return float(CACHES[-3])

    def misfit(cache_bytes: float) -> float:
        found = 0.0
        for members in chosen:
            law = fit_law(members, cache_bytes, leave_out=False).terms
            pairs = worst_rows(members, law, cache_bytes)
            found += sum(min(1.0, abs(math.log(ratio))) for _row, ratio in pairs)
        return found

    return float(min(CACHES, key=misfit))


def fit_law(rows: Sequence[KernelRow], cache_bytes: float, *, leave_out: bool = True) -> LawTerms:
    """The prices of one law: least squares of relative errors, none negative.

    Args:
        rows: That follow it.
        cache_bytes: Of the last cache.
        leave_out: Whether to find its spread, which fits it once for each row.
    """
    import numpy as np

    counts = [counts_of(row.work, cache_bytes) for row in rows]
    names = list(counts[0])
    table = np.array([[c[name] for name in names] for c in counts])
    seconds = np.array([max(row.seconds, 0.0) for row in rows])
    weights = 1.0 / (seconds + CLOCK_S)
    prices = _solve(table, seconds, weights)
    errors = _errors(table, seconds, weights, prices)
    terms = {
        name: Coefficient(value=float(price), error=float(error))
        for name, price, error in zip(names, prices, errors, strict=True)
    }
    if leave_out:
        terms[SPREAD] = Coefficient(value=_spread(table, seconds, weights))
    return LawTerms(
        terms=terms,
        rows=len(rows),
        devices=tuple(sorted({row.device for row in rows})),
    )


_PLAIN = frozenset(
    {"add", "mul", "sub", "div", "neg", "relu", "threshold_backward", "masked_fill", "hardtanh"}
)
"""Elementwise operators that stand for those that are not timed: they cost their bytes."""


def _class_law(work: Work) -> str | None:
    """The law that stands in for operators of the class that are not timed."""
    kind, half = work.work_class, "/half" if work.compute in ("bf16", "fp16") else ""
    name = work.name.rpartition(".")[2]
    if kind is WorkClass.ELEMENTWISE and name not in _PLAIN:
        return None
    return f"{kind.value}{half}"


def _solve(table: FloatArray, seconds: FloatArray, weights: FloatArray) -> FloatArray:
    import numpy as np
    from scipy.optimize import nnls

    scale = np.maximum(np.abs(table).max(axis=0), 1e-300)
    found, _residual = nnls(table * weights[:, None] / scale, seconds * weights)
    return np.asarray(found / scale, dtype=np.float64)


def _errors(
    table: FloatArray, seconds: FloatArray, weights: FloatArray, prices: FloatArray
) -> FloatArray:
    """Standard errors of the prices that are not zero; a price at zero has none."""
    import numpy as np

    used = prices > 0
    errors = np.zeros_like(prices)
    freedom = len(seconds) - int(used.sum())
    if not used.any() or freedom < 1:
        return errors
    scale = np.abs(table[:, used]).max(axis=0)
    weighted = table[:, used] * weights[:, None] / scale
    residual = seconds * weights - weighted @ (prices[used] * scale)
    variance = float(residual @ residual) / freedom
    covariance = variance * np.linalg.pinv(weighted.T @ weighted)
    errors[used] = np.sqrt(np.maximum(0.0, np.diag(covariance))) / scale
    return errors


def _spread(table: FloatArray, seconds: FloatArray, weights: FloatArray) -> float:
    """1 sigma, robust, of log(measured / fitted), each row left out in turn."""
    import numpy as np

    if len(seconds) < LEAST_ROWS:
        return 0.3
    found = []
    for left_out in range(len(seconds)):
        kept = np.arange(len(seconds)) != left_out
        fitted = float(table[left_out] @ _solve(table[kept], seconds[kept], weights[kept]))
        found.append(abs(math.log((seconds[left_out] + CLOCK_S) / (fitted + CLOCK_S))))
    return 1.4826 * statistics.median(found)


def worst_rows(
    rows: Sequence[KernelRow], law: Mapping[str, Coefficient], cache_bytes: float
) -> list[tuple[KernelRow, float]]:
    """Rows with fitted over measured time, the furthest off first."""
    found = []
    for row in rows:
        counts = counts_of(row.work, cache_bytes)
        fitted = sum(law[name].value * count for name, count in counts.items())
        found.append((row, (fitted + CLOCK_S) / (row.seconds + CLOCK_S)))
    return sorted(found, key=lambda pair: -abs(math.log(pair[1])))
