"""Fake CPU tensors in place of a model's own, and back again.

A fake tensor has shape, strides, type and a storage of the right size, but no bytes. While a model
is traced its parameters, buffers and other tensors are fake; afterwards the model is as it was:
what the trace changed in its modules (adapters, checkpointing, caches) is undone as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from bsprof.predict.trace.packages import as_if_real

CPU = torch.device("cpu")

_CONTAINERS = (dict, list, set)
_PLAIN = (Tensor, nn.Parameter, nn.Buffer)


class Fakes:
    """Makes fake tensors, one for each real one: ties and shared storages stay shared.

    Args:
        mode: That the fakes belong to; they are made outside of it.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        # The original is kept beside its fake: an id belongs to an object only while it lives.
        self._tensors: dict[int, tuple[Tensor, Tensor]] = {}
        self._storages: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def of(self, tensor: Tensor) -> Tensor:
        """The fake of a tensor; a parameter's is a parameter. Other kinds stay as they are."""
        if isinstance(tensor, FakeTensor):
            return tensor
        known = self._tensors.get(id(tensor))
        if known is None:
            known = (tensor, self._make(tensor))
            self._tensors[id(tensor)] = known
        return known[1]

    def forget(self) -> None:
        """Let go of all fakes: who needs one holds it."""
        self._tensors.clear()
        self._storages.clear()

    def template(self) -> FakeTensor:
        """A fake tensor of no elements."""
        return FakeTensor(self._mode, torch.empty(0, device="meta"), CPU)

    def _make(self, tensor: Tensor) -> Tensor:
        is_parameter = isinstance(tensor, nn.Parameter)
        plain = type(tensor) in _PLAIN or is_parameter
        if not plain or tensor.layout is not torch.strided or tensor.is_quantized:
            return tensor
        bare = torch.empty(0, dtype=tensor.dtype, device="meta")
        bare.set_(self._storage(tensor), tensor.storage_offset(), tensor.shape, tensor.stride())
        fake = FakeTensor(self._mode, bare, CPU, requires_grad=tensor.requires_grad)
        vars(fake).update(vars(tensor))  # marks of the user's: weights without decay, ...
        if is_parameter:
            fake._is_param = True
        return cast(Tensor, fake)

    def _storage(self, tensor: Tensor) -> torch.UntypedStorage:
        real = tensor.untyped_storage()
        known = self._storages.get(real._cdata)
        if known is None:
            # Kept so that its address stays its own.
            known = (real, _storage_of(real.nbytes()))
            self._storages[real._cdata] = known
        return known[1]


@contextmanager
def faked(model: nn.Module, fakes: Fakes) -> Iterator[None]:
    """The model with fake tensors while inside; afterwards every module is as it was before.

    Covers parameters, buffers, and tensors that modules hold in attributes of their own, also in
    lists, tuples and dicts.
    """
    before = [(module, _copy_state(module)) for module in model.modules()]
    try:
        for module, _ in before:
            _fake_module(module, fakes)
        fakes.forget()
        with as_if_real():
            yield
    finally:
        for module, state in before:
            vars(module).clear()
            vars(module).update(state)


def _copy_state(module: nn.Module) -> dict[str, Any]:
    """A module's attributes, containers copied: those of the module can change without harm."""
    return {
        key: value.copy() if isinstance(value, _CONTAINERS) else value
        for key, value in vars(module).items()
    }


def _fake_module(module: nn.Module, fakes: Fakes) -> None:
    attributes = vars(module)
    for key, value in attributes.items():
        if key != "_modules":
            attributes[key] = _fake_value(value, fakes)


def _fake_value(value: Any, fakes: Fakes) -> Any:
    """A value with its tensors faked; the same object where it holds none."""
    if isinstance(value, Tensor):
        return fakes.of(value)
    kind = type(value)
    if isinstance(value, dict) and any(isinstance(v, Tensor) for v in value.values()):
        fresh = value.copy()
        fresh.update({k: fakes.of(v) if isinstance(v, Tensor) else v for k, v in value.items()})
        return fresh
    if kind in (list, tuple) and any(isinstance(v, Tensor) for v in value):
        return kind(fakes.of(v) if isinstance(v, Tensor) else v for v in value)
    return value


@contextmanager
def movable(on_tensor: Callable[[Tensor], None]) -> Iterator[None]:
    """While inside, `module.to(...)` works on fake modules, which PyTorch's own refuses.

    The objects stay what they are and get other data, as real parameters do, so ties are kept.

    Args:
        on_tensor: Called with each parameter and buffer as it arrives on the device, in order.
    """
    original = nn.Module._apply

    def apply(self: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        if recurse:
            for child in self.children():
                child._apply(fn, recurse)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for parameter in self._parameters.values():
                if parameter is not None:
                    _set_data(parameter, fn)
                    on_tensor(parameter)
                    if parameter.grad is not None:
                        _set_data(parameter.grad, fn)
            for key, buffer in self._buffers.items():
                if buffer is not None:
                    self._buffers[key] = fn(buffer)
                    on_tensor(cast(Tensor, self._buffers[key]))
        return self

    nn.Module._apply = apply  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module._apply = original  # type: ignore[method-assign]


def _set_data(tensor: Tensor, fn: Callable[[Tensor], Tensor]) -> None:
    changed = fn(tensor)
    if changed is not tensor:
        tensor.data = changed


def _storage_of(size: int) -> torch.UntypedStorage:
    return torch.UntypedStorage(size, device="meta")  # type: ignore[no-untyped-call]
