"""The constants of "datasheet times one constant": one per precision, the same for all sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bsprof.validate.time.datasheet import FP32, HALF, TF32, constant, kind_of
from bsprof.validate.time.outcomes import TimeOutcome

CONSTANTS: Mapping[str, float] = {HALF: 1.34, TF32: 1.63, FP32: 1.49}
"""Medians of measured seconds over the data sheet's, on rows that fit and are not scored: in half
precision 177 training steps of timm's models on an RTX 3090; else single kernels that the data
sheet gives at least 100 us (398 in TF32, 16,037 in fp32)."""


def fitted_constants(outcomes: Iterable[TimeOutcome]) -> dict[str, float]:
    """The constants of the rows that fit, by precision; those without such rows are missing."""
    ratios: dict[str, list[float]] = {}
    for outcome in outcomes:
        if outcome.case.training_row and outcome.sheet_s > 0:
            kind = kind_of(outcome.case.spec.precision)
            ratios.setdefault(kind, []).append(outcome.case.seconds / outcome.sheet_s)
    found = {kind: constant(values) for kind, values in ratios.items()}
    return {kind: value for kind, value in found.items() if value is not None}
