"""Builds a model for tracing: without its parameters' bytes where that can be done."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from bsprof.errors import BsprofError, WorkloadError
from bsprof.measure.host import host_memory
from bsprof.predict.trace.places import place_of, told
from bsprof.records import Note
from bsprof.units import format_bytes
from bsprof.workloads.faults import user_code

HOST_SHARE = 0.8
"""Largest share of the host's free memory that a real build may take. Heuristic: constructors
make temporary copies, and others use the machine too."""

RANDOM = (
    torch.ops.aten.uniform_.default,
    torch.ops.aten.normal_.default,
    torch.ops.aten.bernoulli_.float,
)
UNREAD_ELEMENTS = 2**18
"""Random values of larger tensors are taken for weights, which no constructor reads. Heuristic:
tables that constructors compute with are not random."""

_Register = Callable[[nn.Module, str, Any], None]


class _OverBudget(BsprofError):
    """A real build has made more parameters than the host's memory holds."""


def build_model(make: Callable[[], nn.Module], name: str) -> tuple[nn.Module, tuple[Note, ...]]:
    """The model, its parameters without data if possible.

    First every parameter becomes a meta tensor as it is registered (buffers and other tensors are
    real, so constructors may read them). Where a constructor cannot do with that, the model is
    built for real if it fits into the host's free memory; else on the meta device.

    Args:
        make: Makes the model.
        name: Of the workload, for messages.

    Returns:
        The model and a note where it was not built in the first way.

    Raises:
        WorkloadError: no way works; the line of the constructor that stands against the first,
            and the memory that a real build takes, are named.
    """
    made = _Counted()
    try:
        with made.parameters_on_meta(), _Unfilled():  # type: ignore[no-untyped-call]
            return make(), ()
    except Exception as error:  # noqa: BLE001  any error of the constructor's: another way is tried
        first = error
    gc.collect()
    free = int(host_memory().available_bytes * HOST_SHARE)
    counted = _Counted(limit_bytes=free)
    try:
        with user_code(f"cannot build the model of {name}"), counted.limited():
            model = make()
        return model, (_note("for real", first),)
    except _OverBudget:
        gc.collect()
    try:
        with torch.device("meta"):
            return make(), (_note("on the meta device", first),)
    except Exception as error:
        raise WorkloadError(
            f"cannot build {name} without its weights' memory",
            found=f"{place_of(first)}: {told(first)}\non the meta device: {told(error)}",
            next_step=f"trace it on a host with more than {format_bytes(counted.bytes)} of free "
            "memory for its weights",
        ) from error


class _Unfilled(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While inside, large tensors are not filled with random values: their pages stay untouched."""

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in RANDOM and args[0].numel() > UNREAD_ELEMENTS:
            return args[0]
        return func(*args, **(kwargs or {}))


class _Counted:
    """Counts the bytes of parameters as they are registered.

    Args:
        limit_bytes: Most that `limited` lets pass.
    """

    def __init__(self, limit_bytes: int = 0) -> None:
        self.bytes = 0
        self._limit = limit_bytes

    @contextmanager
    def parameters_on_meta(self) -> Iterator[None]:
        """Every parameter becomes a meta parameter when it is registered; ties stay ties."""
        known: dict[int, tuple[weakref.ref[nn.Parameter], nn.Parameter]] = {}

        def replacement(parameter: nn.Parameter) -> nn.Parameter:
            reference, meta = known.get(id(parameter), (None, None))
            if reference is not None and reference() is parameter and meta is not None:
                return meta
            kind = type(parameter)
            meta = kind(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
            vars(meta).update(vars(parameter))
            known[id(parameter)] = (weakref.ref(parameter), meta)
            self._add(parameter)
            return meta

        def register(original: _Register, module: nn.Module, name: str, parameter: Any) -> None:
            original(module, name, parameter)
            kept = module._parameters.get(name)
            plain = type(kept) is nn.Parameter and kept.device.type != "meta"
            if kept is not None and plain and kept.layout is torch.strided:
                module._parameters[name] = replacement(kept)

        with _registering(register):
            yield

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Stop with `_OverBudget` when parameters take more than the limit."""
        seen: dict[int, weakref.ref[nn.Parameter]] = {}

        def register(original: _Register, module: nn.Module, name: str, parameter: Any) -> None:
            original(module, name, parameter)
            if isinstance(parameter, nn.Parameter) and id(parameter) not in seen:
                seen[id(parameter)] = weakref.ref(parameter)
                self._add(parameter)
                if self.bytes > self._limit:
                    raise _OverBudget("the weights do not fit into memory")

        with _registering(register):
            yield

    def _add(self, parameter: nn.Parameter) -> None:
        self.bytes += parameter.numel() * parameter.element_size()


@contextmanager
def _registering(register: Callable[[_Register, nn.Module, str, Any], None]) -> Iterator[None]:
    """While inside, modules register their parameters through `register`."""
    original = nn.Module.register_parameter

    def registered(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        register(original, self, name, param)

    nn.Module.register_parameter = registered  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.register_parameter = original  # type: ignore[method-assign]


def _note(way: str, error: Exception) -> Note:
    return Note(
        code="built-otherwise",
        message=f"the model was built {way}: its constructor reads its own weights "
        f"({place_of(error)})",
    )
