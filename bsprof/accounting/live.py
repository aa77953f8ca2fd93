"""Follows the bytes of live tensors through a step and says whose they are at the peak.

Sees what operators return, not the buffers that a kernel allocates and frees inside: the peak is
of tensors, a lower bound of the allocator's. Works on real and on fake tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bsprof.accounting.traffic import tensors_in
from bsprof.records.parts import Category

_graph_task_id = torch._C._current_graph_task_id

Owned = Callable[[], Mapping[Category, Iterable[torch.Tensor]]]
"""Tensors whose owner is known now: weights, buffers, gradients, optimizer state."""


def training_tensors(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer | None
) -> dict[Category, list[torch.Tensor]]:
    """Weights (parameters and buffers), gradients and optimizer state that exist now."""
    weights = [*model.parameters(), *model.buffers()]
    state = {} if optimizer is None else optimizer.state
    return {
        Category.WEIGHTS: weights,
        Category.GRADIENTS: [p.grad for p in model.parameters() if p.grad is not None],
        Category.OPTIMIZER_STATE: [
            tensor
            for values in state.values()
            for value in values.values()
            for tensor in tensors_in(value)
        ],
    }


class _Block:
    """One storage: its bytes, and whose it is once that is known."""

    __slots__ = ("alive", "category", "in_backward", "live_bytes", "reference")

    def __init__(self, live_bytes: int, category: Category | None, in_backward: bool) -> None:
        self.live_bytes = live_bytes
        self.category = category
        self.in_backward = in_backward
        self.alive = True
        self.reference: weakref.ref[torch.UntypedStorage] | None = None


class LiveTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context manager: live tensor bytes at the peak of what runs inside, by category.

    What `owned` names is weights, gradients or optimizer state. Of the rest, what a forward
    makes (or a checkpoint makes again) and leaves alive for the backward is an activation, and so
    are tensors that existed before and belong to nobody, such as the batch; everything else is
    temporary. The end of a forward is seen by the first operator of a backward pass; where none
    follows (inference), say `end_forward()`.

    Args:
        owned: Called at the start, at every change between forward and backward, and at the
            end; usually `lambda: training_tensors(model, optimizer)`.
    """

    # Without this a mode makes every higher-order operator fail.
    supports_higher_order_operators = True

    def __init__(self, owned: Owned) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._owned = owned
        self._blocks: dict[int, _Block] = {}
        self._fresh: list[_Block] = []
        self._recomputed: list[_Block] = []
        self._resident: list[tuple[_Block, int]] = []
        # (block, change in bytes) in order; the peak is found afterwards, when all is labelled.
        self._events: list[tuple[_Block, int]] = []
        self._in_backward = False

    def __enter__(self) -> Self:
        self._claim()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._claim()
        # What lives on afterwards is no longer followed.
        self._blocks.clear()

    def end_forward(self) -> None:
        """Labels what the forward leaves alive as activations."""
        self._claim()
        self._label_alive(self._fresh)

    @property
    def peak_bytes(self) -> int:
        """Most bytes in live tensors at one time."""
        return sum(self.peak_by_category.values())

    @property
    def peak_by_category(self) -> dict[Category, int]:
        """Bytes of every category at the moment of the peak."""
        live = peak = sum(size for _, size in self._resident)
        peak_at = 0
        events = tuple(self._events)
        for position, (_, change) in enumerate(events, start=1):
            live += change
            if live > peak:
                peak, peak_at = live, position
        # Libraries allocate past the tensors that are followed here.
        held: dict[Category, int] = {c: 0 for c in Category if c is not Category.LIBRARIES}
        for block, size in self._resident:
            held[block.category or Category.ACTIVATIONS] += size
        for block, change in events[:peak_at]:
            held[block.category or Category.TEMPORARIES] += change
        return held

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        in_backward = _graph_task_id() != -1
        if in_backward != self._in_backward:
            self._in_backward = in_backward
            if in_backward:
                self.end_forward()
            else:
                self._claim()
        recomputing = in_backward and torch.is_grad_enabled()
        if self._recomputed and not recomputing:
            self._label_alive(self._recomputed)
        # `torch.tensor(...)` shows first as the input of this operator, and is new.
        if func is not torch.ops.aten.lift_fresh.default:
            for value in (*args, *(kwargs or {}).values()):
                for tensor in tensors_in(value):
                    self._follow(tensor, born=False, recomputing=False)
        result = func(*args, **(kwargs or {}))
        for tensor in tensors_in(result):
            self._follow(tensor, born=True, recomputing=recomputing)
        return result

    def _claim(self) -> None:
        for category, tensors in self._owned().items():
            for tensor in tensors:
                block = self._follow(tensor, born=False, recomputing=False)
                if block is not None:
                    block.category = category

    @staticmethod
    def _label_alive(blocks: list[_Block]) -> None:
        for block in blocks:
            if block.alive and block.category is None:
                block.category = Category.ACTIVATIONS
        blocks.clear()

    def _follow(self, tensor: torch.Tensor, *, born: bool, recomputing: bool) -> _Block | None:
        """The block of a tensor's storage, new if it was not seen before; None without storage.

        A storage first seen as an input existed before: it counts from the start.
        """
        if tensor.layout is not torch.strided:
            return None
        storage = tensor.untyped_storage()
        key = storage._cdata
        block = self._blocks.get(key)
        size = storage.nbytes()
        if block is not None:
            if size != block.live_bytes:
                self._events.append((block, size - block.live_bytes))
                block.live_bytes = size
            return block
        block = _Block(size, None, self._in_backward)
        self._blocks[key] = block
        if born:
            self._events.append((block, size))
            if recomputing:
                self._recomputed.append(block)
            elif not self._in_backward:
                self._fresh.append(block)
        else:
            self._resident.append((block, size))
        block.reference = weakref.ref(storage, partial(self._died, key, block))
        return block

    def _died(self, key: int, block: _Block, _: object) -> None:
        block.alive = False
        if self._blocks.get(key) is block:
            del self._blocks[key]
            self._events.append((block, -block.live_bytes))
