"""Watches every operator of a run on fake tensors and records what becomes of storages."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from bsprof.accounting.causal import CausalRegions
from bsprof.accounting.traffic import tensors_in
from bsprof.predict.trace.accumulation import ADD, IN_PLACE, alone, holders, is_dense
from bsprof.predict.trace.known import KnownResults
from bsprof.predict.trace.modules import ROOT, ModuleStack
from bsprof.predict.trace.places import running_place
from bsprof.predict.trace.plans import PLANS, Plan, plan_of
from bsprof.predict.trace.recorder import UNFOLLOWED, Recorder
from bsprof.predict.trace.storages import Storages
from bsprof.records import Category, Phase

_graph_task_id = torch._C._current_graph_task_id
_current_node = torch._C._current_autograd_node
_without_torch_function = torch._C.DisableTorchFunction

_ASK_DEVICE = torch.ops.prim.device.default
# Not `decompose`, which prefers what torch writes in Python for compilers to what a device runs:
# dropout that drops nothing is a copy there.
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_LIFT = torch.ops.aten.lift_fresh.default
_READ = torch.ops.aten._local_scalar_dense.default
_STRIDED = torch.strided
_NOWHERE = -1
_LAST_NUMBER = 2**62  # nodes that accumulate into parameters share one number above


class StreamTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context manager, inside a `FakeTensorMode`: records the storages of what runs inside.

    A storage begins when an operator returns the first tensor in it (or `follow` is told of it)
    and ends at the moment when its last owner lets go. Real tensors are the host's: what runs on
    them alone runs for real and is not recorded.

    Attributes:
        before_backward: Called once, when the next backward pass begins.
        causal: Which products belong to a causal attention; to be entered around the run.
        values_read: Lines that read a value of a tensor, for which 1 stood in.

    Args:
        known: Results of operators that the `FakeTensorMode` has given.
        modules: Of the model that runs.
        recorder: Where it is written down.
    """

    # Without this a mode makes every higher-order operator fail.
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # PyTorch would wrap the handler, at a cost for every operator

    def __init__(self, known: KnownResults, modules: ModuleStack, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known = known
        self.values_read: dict[str, None] = {}
        self.before_backward: Callable[[], None] | None = None
        self._modules = modules
        self._recorder = recorder
        self.causal = CausalRegions()
        self._storages = Storages(recorder)
        self._operand = self._storages.operand
        self._born_in: dict[int, int] = {}
        self._fresh: list[int] = []
        self._recomputed: list[int] = []
        self._phase: Phase | None = None
        self._in_backward = False
        self._module = self._node_module = ROOT
        self._node = _NOWHERE
        self._alone = alone()

    # What the run says.

    def mark(self, update: int, micro_step: int, phase: Phase | None) -> None:
        """From here on it is that part of the run."""
        self._settle()
        self._phase = phase
        self._recorder.mark(update, micro_step, phase)

    def follow(self, tensor: Tensor, category: Category | None = None) -> None:
        """Count a tensor's storage from now on, if it was not counted already."""
        with _without_torch_function():
            if tensor.layout is _STRIDED and isinstance(tensor, FakeTensor):
                index = self._storages.follow(tensor, self._module)
                if category is not None:
                    self._recorder.label(index, category)

    def label(self, tensors: Iterable[Tensor], category: Category) -> None:
        """Whose the storages of tensors are; of those that are followed."""
        with _without_torch_function():
            for tensor in tensors:
                index = self._storages.of(tensor)
                if index != UNFOLLOWED:
                    self._recorder.label(index, category)

    def end_forward(self) -> None:
        """What the forward left alive is kept for the backward."""
        self._recorder.label_alive(self._fresh, Category.ACTIVATIONS)
        self._fresh.clear()

    def _settle(self) -> None:
        """Between parts of the run: no backward is running."""
        self._in_backward = False
        self._end_recomputation()
        self._fresh.clear()
        self._modules.forget_nodes()
        self._module, self._node = ROOT, _NOWHERE

    def _end_recomputation(self) -> None:
        self._recorder.label_alive(self._recomputed, Category.ACTIVATIONS)
        self._recomputed.clear()

    # What operators do.

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is _ASK_DEVICE and type(args[0]) is FakeTensor:
            return args[0].fake_device
        kwargs = kwargs or {}
        plan = PLANS.get(func) or plan_of(func)
        if plan is None or plan.is_remark:
            return func(*args, **kwargs)
        if plan.decomposes:
            with self:
                return func._op_dk(_COMPOSITE, *args, **kwargs)
        with _without_torch_function():
            if not types and plan.has_tensors and self._is_host(func, args, kwargs):
                with no_dispatch():
                    return func(*args, **kwargs)
            recomputing = self._turn()
            run = self._known.call if plan.repeatable else _call
            if plan.is_view:
                return run(func, args, kwargs)
            if func is _READ:
                return self._read(args[0])
            if self._in_backward and not recomputing and self._is_in_place(func, args, kwargs):
                result = run(IN_PLACE[func], args, kwargs)
            else:
                result = run(func, args, kwargs)
                if plan.resizes:
                    for tensor in tensors_in((*args, *kwargs.values())):
                        self._resized(tensor)
                if plan.may_allocate:
                    for tensor in tensors_in(result):
                        self._born(tensor, recomputing)
            if plan.runs_kernel:
                self._note(plan, args, kwargs, result, recomputing)
            return result

    def _is_host(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether an operator without fake arguments runs on the host's own tensors.

        What the optimizer makes of plain numbers (`step` counters) stays on the host.
        """
        if func is _LIFT:
            return self._phase is Phase.OPTIMIZER_STEP
        return any(True for _ in tensors_in((*args, *kwargs.values())))

    def _turn(self) -> bool:
        """Find out where in the run an operator is; whether it computes something again."""
        in_backward = _graph_task_id() != -1
        if in_backward != self._in_backward:
            self._in_backward = in_backward
            if in_backward:
                self.end_forward()
                self._call_before_backward()
            else:
                self._end_recomputation()
        modules = self._modules
        if not in_backward:
            self._module = modules.note_node()
            return False
        node = _current_node()
        if node is not None:
            number = node._sequence_nr()
            if number != self._node or number > _LAST_NUMBER:
                self._node = number
                self._node_module = modules.of_node(node)
        recomputing = torch.is_grad_enabled()
        if recomputing:
            self._module = modules.note_node() or self._node_module
        else:
            self._module = self._node_module
            if self._recomputed:
                self._end_recomputation()
        return recomputing

    def _read(self, tensor: Tensor) -> Any:
        """What stands for a value that the run reads of the device.

        An optimizer is told that nothing overflowed. Elsewhere numbers are read to be shown or to
        scale by, not to branch on: a float is 1. What is whole or true may be a shape or a branch.
        """
        if self._phase is Phase.OPTIMIZER_STEP:
            return _stand_in(tensor)
        try:
            return _READ(tensor)
        except DataDependentOutputException:
            if not tensor.is_floating_point():
                raise
            self.values_read[running_place()] = None
            return 1.0

    def _call_before_backward(self) -> None:
        call, self.before_backward = self.before_backward, None
        if call is not None:
            with self:
                call()

    def _is_in_place(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether an unwatched backward pass would change the first argument instead."""
        if func not in IN_PLACE or holders(args[0]) != self._alone:
            return False
        first = args[0]
        made_here = self._born_in.get(self._storages.of(first)) == self._node
        if func is not ADD:
            return made_here
        other = args[1]
        alike = isinstance(other, Tensor) and first.shape == other.shape and not kwargs
        return alike and not made_here and first.dtype is other.dtype and is_dense(first)

    def _born(self, tensor: Tensor, recomputing: bool) -> None:
        """An operator returned a tensor: its storage is new, or known already."""
        if tensor.layout is not _STRIDED or not isinstance(tensor, FakeTensor):
            return
        if self._storages.knows(tensor):
            return
        index = self._storages.follow(tensor, self._module)
        if self._in_backward:
            self._born_in[index] = self._node
            if recomputing:
                self._recomputed.append(index)
        else:
            self._fresh.append(index)

    def _resized(self, tensor: Tensor) -> None:
        """After an operator that may resize."""
        if not isinstance(tensor, FakeTensor) or tensor.layout is not _STRIDED:
            return
        if not self._storages.knows(tensor):
            self._born(tensor, recomputing=False)
            return
        index = self._storages.resized(tensor, self._module)
        if index is not None:
            self._fresh.append(index)

    def _note(
        self,
        plan: Plan,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        recomputing: bool,
    ) -> None:
        """Write an operator down."""
        attributes: dict[str, Any] = {"operator_class": plan.operator_class}
        self._count(plan, args, kwargs, result, attributes)
        count = len(args)
        for position, name in plan.attributes:
            value = args[position] if position < count else kwargs.get(name)
            if value is not None:
                attributes[name] = value
        if recomputing:
            attributes["recomputed"] = True
        operand = self._operand
        self._recorder.operators.append(
            (
                len(self._recorder.events),
                plan.name,
                self._module,
                self._phase,
                self._in_backward,
                [operand(t) for t in tensors_in((*args, *kwargs.values()) if kwargs else args)],
                [operand(t) for t in tensors_in(result)],
                attributes,
            )
        )

    def _count(
        self,
        plan: Plan,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        attributes: dict[str, Any],
    ) -> None:
        """What an operator computes and moves, among its attributes."""
        try:
            counts = plan.signature.count(args, kwargs, result, self.causal.share)
        except DataDependentOutputException:
            return  # packed sequences: their lengths are values, which a trace does not have
        flops, hardware, moved = counts
        attributes["moved"] = moved
        if hardware:
            attributes["flops"] = flops
            if hardware != flops:
                attributes["hardware_flops"] = hardware
        if plan.is_multi_tensor:
            lists = sum(1 for a in (*args, *kwargs.values(), result) if _is_tensor_list(a))
            attributes["lists"] = lists

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """While inside, tensors are real: nothing is watched, and nothing is fake."""
        with no_dispatch():
            yield

    def stop(self) -> None:
        """What lives on is no longer followed."""
        self._storages.forget()


def _call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


def _is_tensor_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], Tensor)


def _stand_in(tensor: Tensor) -> int | float | bool:
    """What an optimizer reads of the device: no overflow was found, a norm is nothing special."""
    return False if tensor.dtype is torch.bool else 0.0 if tensor.is_floating_point() else 0


@contextmanager
def quiet_collector() -> Iterator[None]:
    """While inside, Python's collector of cycles runs only when told: frees come in one order."""
    was_on = gc.isenabled()
    gc.freeze()  # what exists now is not looked at again
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()
