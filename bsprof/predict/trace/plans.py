"""What can be known about an operator from its schema, read once."""

from __future__ import annotations

from typing import Any

import torch

from bsprof.accounting.signature import Signature

_RESIZING = ("resize_", "resize_as_", "set_", "resize")
_CHANGING = {
    torch.Tag.inplace_view,
    torch.Tag.dynamic_output_shape,
    torch.Tag.data_dependent_output,
}
_MULTI_TENSOR = ("_foreach_", "_fused_ad", "_fused_sgd", "_amp_foreach_")
_TOLD = ("bool", "int", "float", "str", "SymInt")


class Plan:
    """How the tracker treats an operator.

    Attributes:
        name: Of the overload packet: `aten.mm`.
        signature: Counts its calls.
        operator_class: Its class, as text.
        is_multi_tensor: It works on lists of tensors (`foreach` and fused optimizers).
        is_remark: A question about a tensor or a mark for a profiler: not part of the run.
        is_view: Its result is a view of its input: nothing is allocated and no kernel runs.
        decomposes: It arrives whole (inference mode), and what it is made of says more.
        may_allocate: Some output may lie in a storage of its own.
        repeatable: Its result follows from the shapes, strides and types of its arguments.
        resizes: It may change the size of its input's storage.
        runs_kernel: It launches work.
        has_tensors: Its schema has tensors among its arguments.
        attributes: (position, name) of arguments that are numbers, text or lists of numbers.
    """

    __slots__ = (
        "attributes",
        "decomposes",
        "has_tensors",
        "is_multi_tensor",
        "is_remark",
        "is_view",
        "may_allocate",
        "name",
        "operator_class",
        "repeatable",
        "resizes",
        "runs_kernel",
        "signature",
    )

    def __init__(self, func: torch._ops.OpOverload) -> None:
        schema = func._schema
        self.name = str(func.overloadpacket)
        self.signature = signature = Signature(func)
        self.operator_class = str(signature.entry.operator_class)
        self.is_remark = signature.is_remark
        self.decomposes = signature.decomposes
        base = schema.name.partition("::")[2]
        self.resizes = base in _RESIZING or any(a.is_out for a in schema.arguments)
        self.repeatable = not self.resizes and not _CHANGING & set(func.tags)
        # `torch.tensor(...)` shows as this operator; on a device its result is new.
        self.is_view = func.is_view and base != "lift_fresh"
        writes_only = all(
            result.alias_info is not None and result.alias_info.is_write
            for result in schema.returns
        )
        self.may_allocate = bool(schema.returns) and not writes_only
        self.runs_kernel = not signature.is_silent and not self.is_remark
        self.is_multi_tensor = base.startswith(_MULTI_TENSOR)
        types = [str(argument.type) for argument in schema.arguments]
        self.has_tensors = any("Tensor" in kind for kind in types)
        self.attributes = tuple(
            (position, argument.name)
            for position, (argument, kind) in enumerate(zip(schema.arguments, types, strict=True))
            if _is_told(kind) and argument.name not in ("dtype", "layout", "memory_format")
        )


def _is_told(kind: str) -> bool:
    """Whether an argument of this type is an attribute: a scalar or a list of scalars."""
    bare = kind.replace("Optional[", "").replace("List[", "").rstrip("]")
    return bare in _TOLD


PLANS: dict[Any, Plan] = {}


def plan_of(func: Any) -> Plan | None:
    """The plan of an operator; None for a higher-order one."""
    plan = PLANS.get(func)
    if plan is None and isinstance(func, torch._ops.OpOverload):
        plan = PLANS[func] = Plan(func)
    return plan
