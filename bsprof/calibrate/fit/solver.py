"""Robust least squares on log residuals, with priors: damped Gauss-Newton steps.

Data pull on an effective weight, not on their number, so that a file of thousands of rows does
not outvote a file of fifty; errors of the parameters follow from the same weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

NOISE = 0.12
"""1 sigma of log(measured / predicted) of one row that a law of few terms leaves; heuristic, the
median residuals of the fits are half to all of it."""

_STEPS = 60
_SETTLED = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Parameters, their covariance, and residuals log(predicted / measured) of all rows."""

    parameters: FloatArray
    covariance: FloatArray
    residuals: FloatArray


def solve(
    model: Callable[[FloatArray], tuple[FloatArray, Callable[[], FloatArray]]],
    weights: FloatArray,
    prior: FloatArray,
    prior_spread: FloatArray,
    *,
    start: FloatArray | None = None,
) -> Solution:
    """Parameters that minimise robust residuals and the distance from their prior.

    Args:
        model: From parameters to residuals (rows), and what makes their Jacobian (rows,
            parameters), which is asked for only where a step is kept.
        weights: Of the rows; a row of weight 1 counts like one independent measurement.
        prior, prior_spread: Expected parameters and 1 sigma, before data.
        start: Where to begin; None begins at the prior.
    """
    import numpy as np

    place = prior.copy() if start is None else start.copy()
    precision = 1.0 / prior_spread**2

    def cost(residuals: FloatArray, at: FloatArray) -> float:
        z = residuals / NOISE
        robust = 2.0 * (np.sqrt(1.0 + z * z) - 1.0)  # soft L1
        return float(weights @ robust + precision @ (at - prior) ** 2)

    residuals, slopes = model(place)
    jacobian = slopes()
    current = cost(residuals, place)
    damping = 1e-2
    for _ in range(_STEPS):
        z = residuals / NOISE
        row_weights = weights / (NOISE**2 * np.sqrt(1.0 + z * z))
        weighted = jacobian * row_weights[:, None]
        normal = jacobian.T @ weighted + np.diag(precision)
        slope = weighted.T @ residuals + precision * (place - prior)
        improved = False
        for _try in range(8):
            damped = normal + damping * np.diag(np.diag(normal))
            step = np.clip(-np.linalg.solve(damped, slope), -0.7, 0.7)
            trial = place + step
            new_residuals, slopes = model(trial)
            new = cost(new_residuals, trial)
            if new < current:
                improved = True
                break
            damping *= 4.0
        if not improved:
            break
        gain = current - new
        place, residuals, current = trial, new_residuals, new
        jacobian = slopes()
        damping = max(damping / 5.0, 1e-7)
        if gain < _SETTLED * max(1.0, current):
            break
    z = residuals / NOISE
    row_weights = weights / (NOISE**2 * np.sqrt(1.0 + z * z))
    normal = (jacobian * row_weights[:, None]).T @ jacobian + np.diag(precision)
    covariance = np.asarray(np.linalg.inv(normal), dtype=np.float64)
    return Solution(parameters=place, covariance=covariance, residuals=residuals)
