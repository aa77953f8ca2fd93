"""A tracker that is told what fused kernels read and write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from bsprof.accounting.traffic import tensors_in
from bsprof.predict.trace.plans import Plan
from bsprof.predict.trace.tracker import StreamTracker

FUSED = "fused"
"""In place of an operator's class: a kernel that computes a chain of operators."""


class CompiledTracker(StreamTracker):
    """Follows graphs of a compiler's, whose nodes say which module they belong to."""

    _told: int | None = None
    _is_watching = True
    _graph: dict[str, bool] | None = None

    @contextmanager
    def as_node(self, module: int | None, *, recomputes: bool) -> Iterator[None]:
        """While inside, a node of a compiled graph runs.

        Args:
            module: Whose it is; None leaves that to be found out.
            recomputes: Whether it computes again in a backward graph what the forward did.
        """
        before = self._told, self._graph
        self._told, self._graph = module, {"compiled": True}
        if recomputes:
            self._graph["recomputed"] = True
        try:
            yield
        finally:
            self._told, self._graph = before

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """While inside, no mode is active, this one included."""
        self._is_watching = False
        try:
            with _disable_current_modes():  # type: ignore[no-untyped-call]
                yield
        finally:
            self._is_watching = True

    def running_module(self) -> int:
        """Whose forward runs."""
        return self._modules.running

    def note_fused(
        self,
        name: str,
        reads: Sequence[tuple[Tensor, int]],
        made: object,
        count: int,
        *,
        reduces: bool,
    ) -> None:
        """Write down a kernel that computes `count` operators, `name` the last of them.

        Args:
            name: As an operator's.
            reads: Tensors, each with how many of its elements are read.
            made: One tensor or several, and other things that are not counted.
            count: How many.
            reduces: Whether it sums up.
        """
        if not self._is_watching:
            return
        with torch._C.DisableTorchFunction():
            read = [elements * tensor.element_size() for tensor, elements in reads]
            attributes: dict[str, Any] = {"operator_class": FUSED, "fused": count, "reads": read}
            if reduces:
                attributes["reduction"] = True
            self._recorder.operators.append(
                (
                    len(self._recorder.events),
                    name,
                    self._module,
                    self._phase,
                    self._in_backward,
                    [self._operand(tensor) for tensor, _ in reads],
                    [self._operand(tensor) for tensor in tensors_in(made)],
                    attributes,
                )
            )

    def _note(
        self,
        plan: Plan,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        recomputing: bool,
    ) -> None:
        super()._note(plan, args, kwargs, result, recomputing)
        if self._graph is not None:
            self._recorder.operators[-1][-1].update(self._graph)

    def _turn(self) -> bool:
        recomputing = super()._turn()
        if self._told is not None:
            self._module = self._told
        return recomputing
