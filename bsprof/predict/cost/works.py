"""Operators of a traced run as works: which rule each takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from bsprof.accounting.operators import OperatorClass
from bsprof.accounting.work import Work, WorkClass
from bsprof.predict.cost.attention import attention
from bsprof.predict.cost.context import Call
from bsprof.predict.cost.convolutions import convolution
from bsprof.predict.cost.fusion import fused_kernels
from bsprof.predict.cost.memory_bound import (
    CLASSES,
    embedding,
    loss,
    normalisation,
    plain,
    reduction,
    softmax,
)
from bsprof.predict.cost.multipliers import Multipliers
from bsprof.predict.cost.products import product
from bsprof.predict.cost.recurrent import recurrent, transform
from bsprof.predict.stream import Operator

Rule = Callable[[Call], tuple[Work, ...]]

RULES: dict[str, Rule] = {
    OperatorClass.MATMUL: product,
    OperatorClass.BATCHED_MATMUL: product,
    OperatorClass.CONVOLUTION: convolution,
    OperatorClass.ATTENTION: attention,
    OperatorClass.RNN: recurrent,
    OperatorClass.FFT: transform,
    OperatorClass.NORMALISATION: normalisation,
    OperatorClass.SOFTMAX: softmax,
    OperatorClass.REDUCTION: reduction,
    OperatorClass.LOSS: loss,
    OperatorClass.EMBEDDING: embedding,
}


class Costs:
    """Works of operators under given switches; operators that are alike are looked at once.

    Args:
        multipliers: Switches that decide how 32-bit numbers are multiplied.
        events: Of the stream that the operators are from: where storages end. Without them fused
            kernels are taken to write all that they return to each other.
    """

    def __init__(self, multipliers: Multipliers, events: Sequence[int] = ()) -> None:
        self._multipliers = multipliers
        self._events = events
        self._known: dict[Any, tuple[Work, ...]] = {}

    def of(self, operators: Iterable[Operator]) -> Iterator[tuple[Operator, tuple[Work, ...]]]:
        """Each operator with its works; of fused kernels that run as one, the last with those."""
        for run, following in pairwise([*_runs(operators), None]):
            assert run is not None
            if "fused" in run.members[0].attributes:
                yield from fused_kernels(run.members, self._ended(run, following))
                continue
            for operator in run.members:
                yield operator, self._one(operator, run.recomputes)

    def _ended(self, run: _Run, following: _Run | None) -> set[int]:
        """Storages that are dropped from the first of these operators on, before another runs."""
        events = self._events
        end = len(events)
        if following is not None:
            end = min(end, following.members[0].position)
        place = run.members[-1].position
        while place < end and events[place] < 0:
            place += 1
        return {-event - 1 for event in events[run.members[0].position : place] if event < 0}

    def _one(self, operator: Operator, recomputing: bool) -> tuple[Work, ...]:
        key = _key(operator, recomputing)
        found = self._known.get(key)
        if found is None:
            recomputed = recomputing and "recomputed" in operator.attributes
            call = Call(operator=operator, multipliers=self._multipliers, recomputed=recomputed)
            kind = str(operator.attributes.get("operator_class", OperatorClass.UNCOUNTED))
            rule = RULES.get(kind)
            found = rule(call) if rule else plain(call, CLASSES.get(kind, WorkClass.OTHER))
            self._known[key] = found
        return found


def works_of(operators: Iterable[Operator], multipliers: Multipliers) -> list[Work]:
    """Works of operators, in order.

    Args:
        operators: Of a stream; of a backward pass all or none, as whether it recomputes shows in
            the whole.
        multipliers: Switches that decide how 32-bit numbers are multiplied.
    """
    return [work for _, works in Costs(multipliers).of(operators) for work in works]


def _key(operator: Operator, recomputing: bool) -> Any:
    return (
        operator.name,
        operator.backward,
        recomputing,
        tuple([(o.shape, o.dtype, o.channels_last) for o in operator.inputs]),
        tuple([(o.shape, o.dtype) for o in operator.outputs]),
        tuple(operator.attributes.items()),
    )


@dataclass(slots=True)
class _Run:
    """Operators that follow each other: fused kernels, or none.

    Attributes:
        members: In order, of one direction.
        recomputes: Whether marks of recomputation mean it in the backward pass they are in. They
            are set where gradients are recorded in a backward pass. In one that is itself to be
            differentiated (`create_graph=True`) that is everywhere, and nothing is computed again.
    """

    members: list[Operator]
    recomputes: bool


def _runs(operators: Iterable[Operator]) -> Iterator[_Run]:
    for _, direction in groupby(operators, key=lambda operator: operator.backward):
        members = list(direction)
        recomputes = any("recomputed" not in operator.attributes for operator in members)
        for _, run in groupby(members, key=lambda operator: "fused" in operator.attributes):
            yield _Run(list(run), recomputes)
