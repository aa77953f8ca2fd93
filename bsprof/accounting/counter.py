"""Counts what an eager step computes and moves, operator by operator, as it runs.

The counting pass is separate and untimed: never inside a timed or compiled step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bsprof.accounting.causal import CausalRegions
from bsprof.accounting.operators import OperatorClass
from bsprof.accounting.signature import Signature

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


# Reading a schema costs far more than counting a call, and schemas do not change.
_SIGNATURES: dict[Any, Signature] = {}


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
        signature = _SIGNATURES.get(func)
        if signature is None:
            if not isinstance(func, torch._ops.OpOverload):
                self._operators.append(str(func))
                self._uncounted.add(str(func))
                return func(*args, **kwargs)
            signature = _SIGNATURES[func] = Signature(func)
        if signature.decomposes:
            with self:
                return func.decompose(*args, **kwargs)
        result = func(*args, **kwargs)
        if not signature.is_remark:
            self._operators.append(signature.name)
        if not signature.is_silent:
            self._count(signature, args, kwargs, result)
        return result

    def _count(self, signature: Signature, args: tuple[Any, ...], kwargs: Any, result: Any) -> None:
        entry = signature.entry
        operator_class = entry.operator_class
        self._kernels += 1
        if operator_class is OperatorClass.UNCOUNTED:
            self._uncounted.add(entry.name)
        flops, hardware, moved = signature.count(args, kwargs, result, self._causal.share)
        self._bytes[operator_class] = self._bytes.get(operator_class, 0) + moved
        if hardware:
            self._flops[operator_class] = self._flops.get(operator_class, 0) + hardware
            self._extra_flops += hardware - flops
        self._note_recomputation(flops)

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
