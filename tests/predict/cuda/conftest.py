"""An independent count of live bytes on fake tensors, and what autograd holds of a call."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Bytes of the storages that operators made and that still live, each once.

    Args:
        unit: What each storage is rounded up to.
    """

    def __init__(self, unit: int = 1) -> None:
        super().__init__()
        self.unit = unit
        self.now = 0
        self.peak = 0
        self.names: list[str] = []
        self._seen: set[int] = set()

    def add(self, tensor: torch.Tensor) -> None:
        if tensor.device.type == "meta":  # random states of fused attention: no memory
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._seen:
            return
        size = -(-storage.nbytes() // self.unit) * self.unit
        self._seen.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size

    def restart(self) -> None:
        """Forgets the peak so far."""
        self.peak = self.now

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # In inference mode operators that are made of others arrive whole.
        composite = torch._C.DispatchKey.CompositeImplicitAutograd
        whole = torch.is_inference_mode_enabled() and func.namespace == "aten"
        if whole and func.has_kernel_for_dispatch_key(composite):
            with self:
                return func._op_dk(composite, *args, **(kwargs or {}))
        out = func(*args, **(kwargs or {}))
        self.names.append(func.overloadpacket.__name__)
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        return out


@pytest.fixture
def live() -> Any:
    """A fake mode with the count inside it, active during the test."""
    with FakeTensorMode(), LiveBytes() as counting:
        yield counting


@pytest.fixture
def held() -> Callable[..., int]:
    """Bytes of an output and of what its backward pass keeps, without the inputs."""

    def count(call: Callable[[], torch.Tensor], *inputs: torch.Tensor) -> int:
        kept: list[torch.Tensor] = []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            kept.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = call()
        given = {tensor.untyped_storage()._cdata for tensor in inputs}
        storages = {
            tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes()
            for tensor in [*kept, out]
            if tensor.device.type != "meta"
        }
        return sum(size for key, size in storages.items() if key not in given)

    return count


@pytest.fixture
def counting() -> type[LiveBytes]:
    """The count itself."""
    return LiveBytes
