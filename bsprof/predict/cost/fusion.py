"""Fused kernels of compiled code, and those of them that run as one.

The trace has a kernel for every result that may be written to memory (`trace/compiled_plan.py`).
Inductor's scheduler then joins kernels that go over the same elements and share what they read or
hand on (`torch/_inductor/scheduler.py`, `can_fuse`): a layer norm's statistics and what it makes
of them are one kernel that reads each row once. Two kernels are joined here where

- no kernel of a library's stands between them,
- they go over as many elements, and sums over them give as many results (sums along rows and sums
  along columns are kernels of their own), and
- one reads what the other reads or writes.

A joined kernel reads each tensor once, and does not write what is dropped before it ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from bsprof.accounting.work import Work, WorkClass
from bsprof.predict.cost.multipliers import widest
from bsprof.predict.stream import Operand, Operator


@dataclass(slots=True)
class _Kernel:
    """One kernel that computes several traced ones.

    Attributes:
        elements: That it goes over.
        results: Of its sums; None while it has none.
        reads, writes: Bytes by tensor.
        members: Traced kernels.
    """

    elements: int
    results: int | None
    reads: dict[object, int] = field(default_factory=dict)
    writes: dict[object, int] = field(default_factory=dict)
    members: list[Operator] = field(default_factory=list)

    def takes(self, elements: int, results: int | None, touched: set[object]) -> bool:
        """Whether another kernel can be part of it."""
        if elements != self.elements:
            return False
        if None not in (results, self.results) and results != self.results:
            return False
        return not touched.isdisjoint((*self.reads, *self.writes))

    def add(self, operator: Operator, results: int | None) -> None:
        """Make a traced kernel part of it."""
        if results is not None:
            self.results = results
        for operand, read in zip(operator.inputs, _reads(operator), strict=True):
            key = _key(operand)
            if key in self.writes:
                continue
            before = self.reads.get(key, 0)
            # Parts of one tensor are taken for different parts.
            is_part = max(before, read) < operand.bytes
            self.reads[key] = min(before + read, operand.bytes) if is_part else max(before, read)
        for operand in operator.outputs:
            self.writes[_key(operand)] = operand.bytes
        self.members.append(operator)


def fused_kernels(
    run: Sequence[Operator], ended: Collection[int]
) -> Iterator[tuple[Operator, tuple[Work, ...]]]:
    """The kernels of traced ones that follow each other, each with the last one in it.

    Args:
        run: Traced kernels, none of a library's between them.
        ended: Storages that are dropped before anything else runs.
    """
    kernels: list[_Kernel] = []
    for operator in run:
        elements, results = _extent(operator)
        touched = {_key(o) for o in operator.inputs}
        fitting = [k for k in reversed(kernels) if k.takes(elements, results, touched)]
        if fitting:
            # Rather to one that makes what it reads than to one that reads the same.
            kernel = max(fitting, key=lambda k: not touched.isdisjoint(k.writes))
        else:
            kernel = _Kernel(elements, results)
            kernels.append(kernel)
        kernel.add(operator, results)
    for number, kernel in enumerate(kernels):
        elsewhere = {key for n, other in enumerate(kernels) if n != number for key in other.reads}
        yield kernel.members[-1], (_work(kernel, elsewhere, ended),)


def _work(kernel: _Kernel, elsewhere: Collection[object], ended: Collection[int]) -> Work:
    written = sum(
        size for key, size in kernel.writes.items() if key in elsewhere or key not in ended
    )
    operators = kernel.members
    return Work(
        work_class=WorkClass.FUSED,
        compute=widest(o for op in operators for o in (*op.inputs, *op.outputs)),
        bytes=sum(kernel.reads.values()) + written,
        launches=1,
        calls=0,
        backward=operators[-1].backward,
        rows=kernel.results or 0,
        columns=kernel.elements // kernel.results if kernel.results else 0,
        name=operators[-1].name,
    )


def _extent(operator: Operator) -> tuple[int, int | None]:
    """Elements that a traced kernel goes over, and results of its sums if it is one."""
    made = max((prod(o.shape) for o in operator.outputs), default=0)
    read = max((prod(o.shape) for o in operator.inputs), default=0)
    if operator.attributes.get("reduction"):
        return max(read, made), made
    return made, None


def _reads(operator: Operator) -> list[int]:
    text = operator.attributes.get("reads")
    if text is None or text == "":
        return [o.bytes for o in operator.inputs]
    return [int(part) for part in str(text).split(",")]


def _key(operand: Operand) -> object:
    """A tensor: its storage, or what it looks like where that is not followed."""
    return operand.block if operand.block >= 0 else operand
