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
Kinds = dict[tuple[tuple[int, ...], tuple[int, ...]], int]

LIKE_THEIR_INPUT = frozenset(
    {
        torch.ops.aten.native_batch_norm.default,
        torch.ops.aten.native_batch_norm_backward.default,
        torch.ops.aten.cudnn_batch_norm_backward.default,
    }
)
"""Operators with results like one of their arguments, which take PyTorch long to find out."""


class KnownResults:
    """Results by operator and arguments, for one trace.

    Args:
        template: A fake tensor of the mode that results belong to; without constant.
    """

    def __init__(self, template: FakeTensor) -> None:
        self._state = dict(vars(template))
        self._laws: dict[Key, _Law] = {}
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
        kinds = _kinds(fakes)
        law = _law_key(func, parts, kinds)
        if law is not None and law in self._laws:
            known = self._laws[law].at(kinds)
            self._answers[key] = known
            return self._made(known, fakes)
        # Before it runs: some operators change what they are given.
        storages = [fake.untyped_storage()._cdata for fake in fakes]
        result = func(*args, **kwargs)
        answer = self._answers[key] = _answer(result, fakes, storages)
        if law is not None and answer is not None:
            found = _Law.of(answer, kinds)
            if found is not None:
                self._laws[law] = found
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


class _Law:
    """How results follow from arguments of any shape: each is like one of them, in a type."""

    def __init__(self, container: type | None, results: list[tuple[int, Answer]]) -> None:
        self._container = container
        self._results = results

    @staticmethod
    def of(answer: tuple[type | None, tuple[Answer, ...]], kinds: Kinds) -> _Law | None:
        """The law behind an answer; None where a result is like no argument."""
        results = []
        for one in answer[1]:
            if one[0] in (_ARGUMENT, _VALUE):
                results.append((-1, one))
            elif one[0] == _NEW and (one[1], one[2]) in kinds:
                results.append((kinds[one[1], one[2]], one))
            else:
                return None
        return _Law(answer[0], results)

    def at(self, kinds: Kinds) -> tuple[type | None, tuple[Answer, ...]]:
        """The answer for arguments of these shapes."""
        shapes = list(kinds)
        return self._container, tuple(
            one if number < 0 else (_NEW, *shapes[number], one[3]) for number, one in self._results
        )


def _kinds(fakes: list[FakeTensor]) -> Kinds:
    """The distinct (shape, strides) of tensors, numbered in order."""
    kinds: Kinds = {}
    for fake in fakes:
        kinds.setdefault((tuple(fake.shape), fake.stride()), len(kinds))
    return kinds


def _law_key(func: Any, parts: list[Any], kinds: Kinds) -> Key | None:
    """What decides how results follow from arguments; None where no such law is looked for.

    Laws are looked for in operators that work element by element on tensors of one shape, and in
    batch normalisation.
    """
    if func not in LIKE_THEIR_INPUT and not (torch.Tag.pointwise in func.tags and len(kinds) == 1):
        return None
    shapes = list(kinds)
    if not all(_is_plainly_dense(*shape) for shape in shapes):
        return None
    return tuple(
        (kinds[tuple(part[0]), part[1]], len(part[0]), part[2]) if type(part) is tuple else part
        for part in parts
    )


def _is_plainly_dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether shape and order alone decide the strides; stricter than `accumulation.is_dense`."""
    expected = 1
    for step, length in sorted(zip(stride, shape, strict=True)):
        if length < 2 or step != expected:
            return False  # dimensions of one can have any stride: no law
        expected *= length
    return True


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
