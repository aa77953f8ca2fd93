"""What came of a case: the prediction beside the measurement, and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bsprof.predict.memory import MemoryPrediction
from bsprof.records import Phase, Quantity
from bsprof.validate.cases import Case, Kind
from bsprof.validate.scores import BracketAnswer, Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One predicted case.

    Attributes:
        predicted: The quantity that the source measured; None for a bracket alone.
        answer: None for a peak alone.
        made_of: Predicted bytes at the peak by whose they are, with the named terms.
        phase: Of the predicted peak.
        top_module: Whose storages are the most bytes there.
    """

    case: Case
    predicted: Quantity | None = None
    answer: BracketAnswer | None = None
    made_of: Mapping[str, float] = field(default_factory=dict)
    phase: Phase | None = None
    top_module: str = ""

    @property
    def pair(self) -> Pair | None:
        """Predicted beside measured; None for a bracket alone."""
        measured = self.case.measured
        if self.predicted is None or measured is None:
            return None
        return Pair(
            name=self.case.row,
            model=self.case.model,
            micro_batch=self.case.micro_batch,
            predicted=self.predicted,
            measured=measured.bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpredicted:
    """A case that could not be predicted.

    Attributes:
        reason: What stood in the way.
    """

    case: Case
    reason: str


def quantity_of(case: Case, prediction: MemoryPrediction) -> Quantity | None:
    """The predicted quantity that a case's measurement is one of."""
    if case.measured is None:
        return None
    kind = case.measured.kind
    if kind is Kind.ALLOCATED:
        found = prediction.allocated_bytes
        first = float(prediction.first_step_allocated_bytes)
    else:
        used = prediction.device_used_bytes
        found = prediction.reserved_bytes if kind is Kind.RESERVED else used
        first = prediction.first_step_reserved_bytes.value
        if kind is Kind.DEVICE:
            first += used.value - prediction.reserved_bytes.value
    if case.whole_run and first > found.value:
        scale = first / found.value
        found = found.scaled(scale)
    held = case.resident_bytes
    return Quantity(value=found.value + held, low=found.low + held, high=found.high + held)


def made_of(prediction: MemoryPrediction) -> dict[str, float]:
    """Bytes of a prediction by name, largest first."""
    live = prediction.allocated_bytes.value
    parts: dict[str, float] = {
        category.value: float(amount) for category, amount in prediction.by_category_bytes.items()
    }
    parts["cached and unused"] = prediction.reserved_bytes.value - live
    parts["outside the allocator"] = (
        prediction.device_used_bytes.value - prediction.reserved_bytes.value
    )
    return dict(sorted(parts.items(), key=lambda part: -part[1]))
