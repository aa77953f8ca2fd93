"""What the rules for one operator are given, and what all its works have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bsprof.accounting.work import Work, WorkClass
from bsprof.predict.cost.launches import launches_of
from bsprof.predict.cost.multipliers import Multipliers, widest
from bsprof.predict.stream import Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operator under given switches.

    Attributes:
        operator: As traced.
        multipliers: How numbers are multiplied.
        recomputed: Whether it computes again what a forward pass did.
    """

    operator: Operator
    multipliers: Multipliers
    recomputed: bool

    @property
    def moved(self) -> int:
        """Bytes at its border, as counted when it was traced; else of all operands, once each."""
        if "moved" in self.operator.attributes:
            return self.number("moved")
        return sum(o.bytes for o in (*self.operator.inputs, *self.operator.outputs))

    @property
    def hardware_flops(self) -> int:
        """FLOPs as run."""
        return self.number("hardware_flops", self.number("flops"))

    @property
    def model_flops(self) -> int:
        """FLOPs of the mathematics; none where it recomputes."""
        return 0 if self.recomputed else self.number("flops")

    def number(self, name: str, default: int = 0) -> int:
        """A whole number among its attributes."""
        return int(self.operator.attributes.get(name, default) or default)

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers among its attributes; empty where it has none."""
        text = self.operator.attributes.get(name)
        if text is None or text == "":
            return ()
        return tuple(int(part) for part in str(text).split(","))

    def work(self, work_class: WorkClass, **fields: Any) -> Work:
        """A work of this operator: its counts, its launches and one call, unless told otherwise."""
        operator = self.operator
        compiled = "compiled" in operator.attributes
        given: dict[str, Any] = {
            "compute": widest(operator.inputs or operator.outputs),
            "flops": self.hardware_flops,
            "model_flops": self.model_flops,
            "bytes": self.moved,
            "launches": launches_of(operator),
            "calls": 0 if compiled else 1,
            "backward": operator.backward,
            "recomputed": self.recomputed,
            "name": operator.name,
        }
        return Work(work_class=work_class, **(given | fields))

    def part(self, work_class: WorkClass, **fields: Any) -> Work:
        """A kernel beside the operator's own: no call, no FLOPs, one launch."""
        aside = {"flops": 0, "model_flops": 0, "bytes": 0, "launches": 1, "calls": 0}
        return self.work(work_class, **(aside | fields))
