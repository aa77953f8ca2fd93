"""The one table of operators: name -> class, FLOPs, bytes. Knows nothing of running anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from bsprof.accounting.contractions import CONTRACTIONS
from bsprof.accounting.memory_bound import MEMORY_BOUND
from bsprof.accounting.operators import Operator, OperatorClass

_FOREACH_PREFIX = "aten::_foreach_"


def build_table(entries: Iterable[Operator]) -> Mapping[str, Operator]:
    """Maps each entry's name to it.

    Raises:
        ValueError: Two entries have one name: the second would silently replace the first.
    """
    table: dict[str, Operator] = {}
    for entry in entries:
        if entry.name in table:
            raise ValueError(f"operator {entry.name} is in the table twice")
        table[entry.name] = entry
    return MappingProxyType(table)


TABLE: Mapping[str, Operator] = build_table((*CONTRACTIONS, *MEMORY_BOUND))


def base_name(qualified_name: str) -> str:
    """Name of the entry that an operator shares: `aten::add_` is counted as `aten::add`."""
    if qualified_name.endswith("_") and not qualified_name.endswith("__"):
        return qualified_name[:-1]
    return qualified_name


def lookup(qualified_name: str, *, is_view: bool = False, is_pointwise: bool = False) -> Operator:
    """How an operator is counted; of class `uncounted` when nothing is known about it.

    Args:
        qualified_name: `aten::add_`, without overload.
        is_view: What the operator's schema says: its result aliases its input.
        is_pointwise: Whether PyTorch tags the operator as pointwise: such operators need no
            entry, they move their inputs and outputs and have no FLOPs.
    """
    name = base_name(qualified_name)
    found = TABLE.get(name)
    if found is not None and not (is_pointwise and found.operator_class is OperatorClass.REDUCTION):
        return found  # `max` of two tensors (`max.other`) reduces nothing
    if is_view:
        return Operator(name=name, operator_class=OperatorClass.VIEW)
    if is_pointwise or name.startswith(_FOREACH_PREFIX):
        return Operator(name=name, operator_class=OperatorClass.ELEMENTWISE)
    return Operator(name=qualified_name, operator_class=OperatorClass.UNCOUNTED)
