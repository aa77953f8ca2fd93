"""What came of a case: predicted beside measured, what it is made of, and the data sheet's time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bsprof.accounting.work import WorkClass
from bsprof.records import Quantity, Regime
from bsprof.validate.scores import Pair
from bsprof.validate.time.cases import Calibrates, TimeCase


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOutcome:
    """One predicted case.

    Attributes:
        predicted: The quantity that was measured, in seconds.
        sheet_s: The same by the data sheet's roofline.
        by_class_s: Predicted seconds of the device by class of work.
        host_s: Predicted seconds of the host.
        regime: What binds most of it.
        set_name: The scored set: the case's, or the one of its grouped convolutions.
    """

    case: TimeCase
    predicted: Quantity
    sheet_s: float
    by_class_s: Mapping[WorkClass, float] = field(default_factory=dict)
    host_s: float = 0.0
    regime: Regime = Regime.UNKNOWN
    set_name: str = ""

    @property
    def is_scored(self) -> bool:
        """Whether it is judged: neither fitted on nor used to correct others."""
        return not self.case.training_row and self.case.calibrates is Calibrates.NOTHING

    @property
    def pair(self) -> Pair:
        """Predicted beside measured."""
        case = self.case
        return Pair(
            name=case.row,
            model=case.model,
            micro_batch=case.micro_batch,
            predicted=self.predicted,
            measured=case.seconds,
        )

    def sheet_pair(self, factor: float = 1.0) -> Pair:
        """The data sheet's time, times a constant, beside measured."""
        case = self.case
        return Pair(
            name=case.row,
            model=case.model,
            micro_batch=case.micro_batch,
            predicted=Quantity.exact(factor * self.sheet_s),
            measured=case.seconds,
        )

    @property
    def device_s(self) -> float:
        """Predicted seconds of the device."""
        return sum(self.by_class_s.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeUnpredicted:
    """A case that has no score.

    Attributes:
        reason: What stood in the way.
        counts: Whether it counts against the share of rows that are scored.
    """

    case: TimeCase
    reason: str
    counts: bool = True
