"""What `bsprof check` finds: frozen records, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bsprof.records import Note


class Cause(StrEnum):
    """Why accumulated pieces give another gradient than the whole batch."""

    BATCH_NORM = "batch-norm"
    TOKEN_MEAN = "token-mean"
    UNEQUAL_PIECES = "unequal-pieces"
    DROPOUT = "dropout"
    IN_BATCH = "in-batch"
    STATE = "state"
    SUM_LOSS = "sum-loss"
    LOW_PRECISION = "low-precision"
    SPARSE = "sparse-gradients"
    FREQUENCY = "embedding-frequency"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause, shown by an experiment.

    Attributes:
        counts: Whether it makes the gradients differ; a remark otherwise.
        message: What was seen, one or two sentences.
        fix: What to do.
        modules: Names of the modules it is about, the first few.
    """

    cause: Cause
    counts: bool = True
    message: str
    fix: str
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterDifference:
    """One parameter's gradient.

    Attributes:
        norm: Of the whole batch's gradient.
        relative_difference: Norm of the difference over `norm`, or over a thousandth of the norm
            of all parameters' gradient where that is larger: a gradient that is zero but for
            rounding has no relative difference of its own.
    """

    name: str
    norm: float
    relative_difference: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """The answer of `bsprof check`.

    Attributes:
        equivalent: Whether no cause that counts was found, save those that were allowed.
        precision: In which the comparison was made: `fp64`, or `fp32` where the model cannot.
        training_precision: That was looked at besides; empty for none.
        pieces: Samples of each piece.
        weigh: What the pieces were weighed by: `samples`, `tokens` or `equal`.
        weights: Of each piece.
        relative_difference: Of the whole gradient: norm of the difference over the norm.
        tolerance: Above which it counts, for every parameter.
        parameters: The largest difference first.
        findings: Those that count first.
        allowed: Causes that the user said do not matter.
    """

    model: str
    equivalent: bool
    precision: str
    training_precision: str = ""
    pieces: tuple[int, ...]
    weigh: str
    weights: tuple[float, ...]
    relative_difference: float
    tolerance: float
    parameters: tuple[ParameterDifference, ...]
    findings: tuple[Finding, ...] = ()
    allowed: tuple[Cause, ...] = ()
    notes: tuple[Note, ...] = ()
