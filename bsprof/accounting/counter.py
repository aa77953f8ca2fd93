"""Counts what an eager step computes and moves, operator by operator, as it runs.

The counting pass is separate and untimed: never inside a timed or compiled step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bsprof.accounting.causal import CausalRegions
from bsprof.accounting.operators import Arguments, Operator, OperatorClass
from bsprof.accounting.table import TABLE, base_name, lookup
from bsprof.accounting.traffic import tensors_in, value_bytes

# Where the autograd engine says which backward pass a thread is in; -1 outside of any.
_graph_task_id = torch._C._current_graph_task_id


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTotals:
    """Everything counted between entering and leaving an `OperatorCounter`.

    Attributes:
        model_flops: FLOPs of the mathematics, forward and backward as really run, without
            anything computed a second time.
        hardware_flops: The same plus what is computed on top: recomputation by activation
            checkpointing, scores that a fused attention backward computes again, and pairs that
            an unfused causal attention computes and masks away.
        bytes_moved: Bytes read and written at the border of every operator, recomputation
            included; an in-place operator reads and writes its tensor once each; views are free.
        kernels: Operators that launch work (neither views nor bare allocations).
        flops_by_class: Hardware FLOPs of each class that has any.
        bytes_by_class: Bytes of each class that has any.
        uncounted: Names of operators that nothing is known about, sorted; their bytes and
            kernels are counted, their FLOPs are taken as zero.
        operators: Names with overload of all operators, in the order they ran.
    """

    model_flops: int
    hardware_flops: int
    bytes_moved: int
    kernels: int
    flops_by_class: Mapping[OperatorClass, int]
    bytes_by_class: Mapping[OperatorClass, int]
    uncounted: tuple[str, ...]
    operators: tuple[str, ...]


class _Plan:
    """What can be known about an operator before it runs, read once from its schema."""

    __slots__ = (
        "decomposes",
        "defaults",
        "entry",
        "is_plain",
        "is_remark",
        "name",
        "out_names",
        "returns_fresh",
        "silent",
        "written_names",
        "written_positions",
    )

    def __init__(self, func: torch._ops.OpOverload) -> None:
        schema = func._schema
        self.name = str(func)
        self.entry: Operator = lookup(
            schema.name, is_view=func.is_view, is_pointwise=torch.Tag.pointwise in func.tags
        )
        # Under inference mode composite operators arrive whole. What they are made of says more
        # than their schema: `reshape` looks like a view and may copy.
        in_table = base_name(schema.name) in TABLE
        self.decomposes = not in_table and torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(),  # type: ignore[no-untyped-call]
            "CompositeImplicitAutograd",
        )
        # Questions about a tensor and marks for a profiler: not part of what is computed, and
        # asked more often of fake tensors.
        self.is_remark = func.namespace in ("prim", "profiler")
        self.is_plain = self.entry.flops is None and self.entry.moved is None
        self.silent = not self.entry.operator_class.runs_kernel
        self.defaults = {
            argument.name: argument.default_value if argument.has_default_value() else None
            for argument in schema.arguments
        }
        written = [
            (position, argument)
            for position, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        self.out_names = frozenset(argument.name for _, argument in written if argument.is_out)
        self.written_names = tuple(a.name for _, a in written if a.kwarg_only)
        self.written_positions = tuple(p for p, a in written if not a.kwarg_only)
        self.returns_fresh = all(result.alias_info is None for result in schema.returns)

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments of a call by name."""
        return {**self.defaults, **dict(zip(self.defaults, args, strict=False)), **kwargs}

    def bytes_moved(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> int:
        """Every input read once, every output and every changed input written once."""
        total = 0
        for value in args:
            total += value_bytes(value)
        for name, value in kwargs.items():
            if name not in self.out_names:
                total += value_bytes(value)
        for position in self.written_positions:
            if position < len(args):
                total += value_bytes(args[position])
        for name in self.written_names:
            total += value_bytes(kwargs.get(name))
        if self.returns_fresh:
            total += value_bytes(result)
        return total


# Reading a schema costs far more than counting a call, and schemas do not change.
_PLANS: dict[Any, _Plan] = {}


class OperatorCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context manager that counts every operator dispatched inside it, backward included.

    Recomputation is told from the rest by where it runs: inside a backward pass, yet with
    gradients enabled. A backward pass that is itself differentiated (`create_graph=True`) has
    gradients enabled throughout; it is model FLOPs, and recomputation inside it is not told
    apart.
    """

    # Without this a mode makes every higher-order operator fail.
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operators: list[str] = []
        self._uncounted: set[str] = set()
        self._flops: dict[OperatorClass, int] = {}
        self._bytes: dict[OperatorClass, int] = {}
        self._kernels = 0
        self._causal = CausalRegions()
        self._depth = 0
        self._extra_flops = 0
        # FLOPs with gradients enabled in the backward pass that is running, and whether that
        # pass has shown to be an ordinary one (some operator had gradients disabled).
        self._pending_flops = 0
        self._pending_ordinary = False

    def __enter__(self) -> Self:
        # Decomposing an operator enters the mode once more.
        if self._depth == 0:
            self._causal.__enter__()
        self._depth += 1
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._depth -= 1
        if self._depth == 0:
            self._causal.__exit__(*error)

    @property
    def totals(self) -> OperatorTotals:
        """What was counted so far."""
        extra = self._extra_flops + (self._pending_flops if self._pending_ordinary else 0)
        flops = sum(self._flops.values())
        return OperatorTotals(
            model_flops=flops - extra,
            hardware_flops=flops,
            bytes_moved=sum(self._bytes.values()),
            kernels=self._kernels,
            flops_by_class=MappingProxyType({c: n for c, n in self._flops.items() if n}),
            bytes_by_class=MappingProxyType({c: n for c, n in self._bytes.items() if n}),
            uncounted=tuple(sorted(self._uncounted)),
            operators=tuple(self._operators),
        )

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        plan = _PLANS.get(func)
        if plan is None:
            if not isinstance(func, torch._ops.OpOverload):
                self._operators.append(str(func))
                self._uncounted.add(str(func))
                return func(*args, **kwargs)
            plan = _PLANS[func] = _Plan(func)
        if plan.decomposes:
            with self:
                return func.decompose(*args, **kwargs)
        result = func(*args, **kwargs)
        if not plan.is_remark:
            self._operators.append(plan.name)
        if not plan.silent:
            self._count(plan, args, kwargs, result)
        return result

    def _count(self, plan: _Plan, args: tuple[Any, ...], kwargs: Any, result: Any) -> None:
        entry = plan.entry
        operator_class = entry.operator_class
        self._kernels += 1
        flops = 0
        if plan.is_plain:
            moved = plan.bytes_moved(args, kwargs, result)
            if operator_class is OperatorClass.UNCOUNTED:
                self._uncounted.add(entry.name)
        else:
            arguments = plan.arguments(args, kwargs)
            outputs = list(tensors_in(result))
            moved = (
                plan.bytes_moved(args, kwargs, result)
                if entry.moved is None
                else entry.moved(arguments, outputs)
            )
            if entry.flops is not None:
                flops = self._count_flops(entry, arguments, outputs)
        self._bytes[operator_class] = self._bytes.get(operator_class, 0) + moved
        self._note_recomputation(flops)

    def _count_flops(self, entry: Operator, arguments: Arguments, outputs: Sequence[Any]) -> int:
        """Adds an operator's hardware FLOPs and returns its model FLOPs."""
        assert entry.flops is not None
        flops = hardware = entry.flops(arguments, outputs)
        if entry.recomputed_flops is not None:
            hardware += entry.recomputed_flops(arguments, outputs)
        elif entry.operator_class in (OperatorClass.BATCHED_MATMUL, OperatorClass.MATMUL):
            share = self._causal.share()
            if share is not None:
                flops = flops * share[0] // share[1]
        self._flops[entry.operator_class] = self._flops.get(entry.operator_class, 0) + hardware
        self._extra_flops += hardware - flops
        return flops

    def _note_recomputation(self, flops: int) -> None:
        """Keeps FLOPs of a backward pass aside until it is known what kind of pass it is."""
        if _graph_task_id() == -1:
            if self._pending_flops or self._pending_ordinary:
                self._settle()
        elif not torch.is_grad_enabled():
            self._pending_ordinary = True
        else:
            self._pending_flops += flops

    def _settle(self) -> None:
        if self._pending_ordinary:
            self._extra_flops += self._pending_flops
        self._pending_flops = 0
        self._pending_ordinary = False
