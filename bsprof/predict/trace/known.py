"""What an operator returns for arguments of shapes that were seen before: without running it.

`FakeTensorMode` finds out what an operator returns in half a millisecond. A step repeats few
operators many times, so the answer is kept: which shape, strides and type each result has, and
whether it is new, an argument, or a view of one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

CPU = torch.device("cpu")
META = torch.device("meta")

_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.layout, torch.memory_format)
_LISTS = (list, tuple, torch.Size)

_NEW, _ARGUMENT, _VIEW, _VALUE = range(4)

Key = tuple[Any, ...]
Answer = tuple[Any, ...]


class KnownResults:
    """Results by operator and arguments, for one trace.

    Args:
        template: A fake tensor of the mode that results belong to; without constant.
    """

    def __init__(self, template: FakeTensor) -> None:
        self._state = dict(vars(template))
        self._answers: dict[Key, tuple[type | None, tuple[Answer, ...]] | None] = {}

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operator's result, found out by running it where it is not known."""
        if torch.is_inference_mode_enabled():
            return func(*args, **kwargs)  # a view there is of its base's kind, not of the mode's
        parts: list[Any] = [func]
        fakes: list[FakeTensor] = []
        if not (_describe(args, parts, fakes) and _describe(kwargs.items(), parts, fakes)):
            return func(*args, **kwargs)
        key = tuple(parts)
        if key in self._answers:
            known = self._answers[key]
            if known is None:
                return func(*args, **kwargs)
            return self._made(known, fakes)
        # Before it runs: some operators change what they are given.
        storages = [fake.untyped_storage()._cdata for fake in fakes]
        result = func(*args, **kwargs)
        self._answers[key] = _answer(result, fakes, storages)
        return result

    def _made(self, known: tuple[type | None, tuple[Answer, ...]], fakes: list[FakeTensor]) -> Any:
        container, answers = known
        if container is None:
            return self._one(answers[0], fakes)
        return container([self._one(answer, fakes) for answer in answers])

    def _one(self, answer: Answer, fakes: list[FakeTensor]) -> Any:
        kind = answer[0]
        if kind == _NEW:
            guard = torch._C._DisableTorchDispatch()
            bare = torch.empty_strided(answer[1], answer[2], dtype=answer[3], device=META)
        elif kind == _VIEW:
            storage = fakes[answer[5]].untyped_storage()
            guard = torch._C._DisableTorchDispatch()
            bare = torch.empty(0, dtype=answer[3], device=META)
            bare.set_(storage, answer[4], answer[1], answer[2])
        elif kind == _ARGUMENT:
            return fakes[answer[1]]
        else:
            return answer[1]
        made = Tensor._make_subclass(
            FakeTensor, bare, False, dispatch_device=True, device_for_backend_keys=CPU
        )
        del guard
        vars(made).update(self._state)
        return made


def _describe(values: Any, parts: list[Any], fakes: list[FakeTensor]) -> bool:
    """Append what of arguments decides the result; False where that cannot be told."""
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            dtype = value.dtype
            if value.constant is not None or dtype.is_complex:
                return False
            parts.append((value.shape, value.stride(), dtype, value.storage_offset()))
            fakes.append(value)
        elif kind in _PLAIN:
            parts.append(kind)
            parts.append(value)
        elif kind in _LISTS:
            parts.append(len(value))
            if not _describe(value, parts, fakes):
                return False
        elif kind is torch.device:
            if value.type != "cpu":
                return False
            parts.append(value)
        else:
            return False
    return True


def _answer(
    result: Any, fakes: list[FakeTensor], storages: list[int]
) -> tuple[type | None, tuple[Answer, ...]] | None:
    """How to make this result again; None where that cannot be told."""
    single = not isinstance(result, list | tuple)
    if not single and type(result) not in (list, tuple):
        return None
    seen: set[int] = set(storages)
    answers = []
    for value in (result,) if single else result:
        answer = _answer_of(value, fakes, storages, seen)
        if answer is None:
            return None
        answers.append(answer)
    return None if single else type(result), tuple(answers)


def _answer_of(
    value: Any, fakes: list[FakeTensor], storages: list[int], seen: set[int]
) -> Answer | None:
    if type(value) in _PLAIN:
        return _VALUE, value
    if type(value) is not FakeTensor or value.dtype.is_complex or value.constant is not None:
        return None
    for number, fake in enumerate(fakes):
        if value is fake:
            return _ARGUMENT, number
    if value.layout is not torch.strided or value.fake_device.type != "cpu":
        return None
    storage = value.untyped_storage()
    shape, stride, dtype = tuple(value.shape), value.stride(), value.dtype
    offset = value.storage_offset()
    if storage._cdata in storages:
        base = storages.index(storage._cdata)
        return _VIEW, shape, stride, dtype, offset, base
    if storage._cdata in seen or offset or storage.nbytes() != _extent(shape, stride, dtype):
        return None
    seen.add(storage._cdata)
    return _NEW, shape, stride, dtype


def _extent(shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes from the first to the last element."""
    last = 0
    for length, step in zip(shape, stride, strict=True):
        if length == 0:
            return 0
        last += (length - 1) * step
    return (last + 1) * dtype.itemsize
