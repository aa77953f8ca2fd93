"""The loss of a compiled model as if it were compiled as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from bsprof.accounting.operators import OperatorClass
from bsprof.predict.stream import Operator

_IN_GRAPH = ("fused", "compiled")


def with_compiled_loss(operators: Sequence[Operator]) -> list[Operator]:
    """A micro-step whose eager loss, behind a compiled model, is two fused kernels.

    What stands between the forward graph and the backward graph is the loss. Compiled, its forward
    reads the model's output and keeps no more than a number or two a row; its backward reads that
    output again and writes its gradient. Without such graphs nothing is changed.
    """
    places = [n for n, op in enumerate(operators) if not op.attributes.keys().isdisjoint(_IN_GRAPH)]
    ahead = [n for n in places if not operators[n].backward]
    behind = [n for n in places if operators[n].backward]
    if not ahead:
        return list(operators)
    begin, end = ahead[-1] + 1, behind[0] if behind else len(operators)
    made: list[Operator] = []
    shown = None
    for _, run in groupby(operators[begin:end], key=lambda operator: operator.backward):
        members = list(run)
        shown = shown or max(members[0].inputs, key=lambda o: o.bytes, default=None)
        if shown is None:
            return list(operators)
        named = [op for op in members if op.attributes.get("operator_class") == OperatorClass.LOSS]
        made.append(
            replace(
                members[-1],
                name=(named or members)[0].name,
                inputs=(shown,),
                attributes={"operator_class": "fused", "fused": len(members)},
            )
        )
    return [*operators[:begin], *made, *operators[end:]]
