"""Which storages exist, and when each ends."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from bsprof.predict.trace.recorder import UNFOLLOWED, RawOperand, Recorder

_STRIDED = torch.strided
_NAMES = {
    value: str(value).removeprefix("torch.")
    for value in vars(torch).values()
    if isinstance(value, torch.dtype)
}


class _Reference(weakref.ref[torch.UntypedStorage]):
    """A weak reference to a storage that knows what it is called."""

    __slots__ = ("index", "key")
    index: int
    key: int


class Storages:
    """Numbers storages as they begin, and records their end when it comes.

    Called for every tensor of every operator, with PyTorch's function modes disabled.

    Args:
        recorder: Where it is written down.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._index: dict[int, int] = {}
        self._references: dict[int, _Reference] = {}

    def knows(self, tensor: Tensor) -> bool:
        """Whether a tensor's storage is followed."""
        return tensor.untyped_storage()._cdata in self._index

    def of(self, tensor: Tensor) -> int:
        """The index of a tensor's storage; `UNFOLLOWED` where it has none."""
        if tensor.layout is not _STRIDED:
            return UNFOLLOWED
        return self._index.get(tensor.untyped_storage()._cdata, UNFOLLOWED)

    def follow(self, tensor: Tensor, module: int) -> int:
        """The index of a tensor's storage, which is followed from now on."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        index = self._index.get(key)
        if index is None:
            index = self._recorder.allocate(storage.nbytes(), module)
            self._index[key] = index
            reference = _Reference(storage, self._died)
            reference.key = key
            reference.index = index
            self._references[key] = reference
        return index

    def resized(self, tensor: Tensor, module: int) -> int | None:
        """The new index of a storage that has another size now; None where it has its size."""
        storage = tensor.untyped_storage()
        reference = self._references.get(storage._cdata)
        if reference is None or storage.nbytes() == self._recorder.sizes[reference.index]:
            return None
        self._recorder.free(reference.index)
        index = self._recorder.allocate(storage.nbytes(), module)
        reference.index = self._index[reference.key] = index
        return index

    def operand(self, tensor: Tensor) -> RawOperand:
        """What is written down of an operator's operand."""
        shape = tuple(tensor.shape)
        if tensor.layout is not _STRIDED:
            return shape, _NAMES[tensor.dtype], UNFOLLOWED, False
        block = self._index.get(tensor.untyped_storage()._cdata, UNFOLLOWED)
        last = len(shape) > 3 and shape[1] > 1 and tensor.stride()[1] == 1 and _has_area(shape)
        return shape, _NAMES[tensor.dtype], block, last

    def forget(self) -> None:
        """What lives on is no longer followed."""
        self._references.clear()
        self._index.clear()

    def _died(self, reference: weakref.ref[torch.UntypedStorage]) -> None:
        assert isinstance(reference, _Reference)
        del self._index[reference.key]
        del self._references[reference.key]
        self._recorder.free(reference.index)


def _has_area(shape: tuple[int, ...]) -> bool:
    """Whether the order of channels and places matters: there is more than one place."""
    return any(length > 1 for length in shape[2:])
