"""A tracker that is told what fused kernels read and write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from bsprof.accounting.traffic import tensors_in
from bsprof.predict.trace.tracker import StreamTracker


class CompiledTracker(StreamTracker):
    """Follows graphs of a compiler's, whose nodes say which module they belong to."""

    _told: int | None = None
    _is_watching = True

    @contextmanager
    def as_module(self, index: int | None) -> Iterator[None]:
        """While inside, what runs belongs to that module; None leaves it to be found out."""
        before, self._told = self._told, index
        try:
            yield
        finally:
            self._told = before

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

    def note_fused(self, name: str, reads: Iterable[Tensor], made: object, count: int) -> None:
        """Write down a kernel that computes `count` operators, `name` the last of them."""
        if not self._is_watching:
            return
        with torch._C.DisableTorchFunction():
            self._recorder.operators.append(
                (
                    len(self._recorder.events),
                    name,
                    self._module,
                    self._phase,
                    self._in_backward,
                    [self._operand(tensor) for tensor in reads],
                    [self._operand(tensor) for tensor in tensors_in(made)],
                    {"fused": count},
                )
            )

    def _turn(self) -> bool:
        recomputing = super()._turn()
        if self._told is not None:
            self._module = self._told
        return recomputing
