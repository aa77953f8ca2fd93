"""A stream as plain JSON values and back: compact, as it travels from a worker. No torch.

Names, shapes and attributes repeat thousands of times, so each stands once in a table and is
named by its index. The form is not kept between versions of bsprof.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Any, Generic, TypeVar

from bsprof.predict.stream import Mark, Operand, Operator, Stream
from bsprof.records import Category, Phase, Scalar

T = TypeVar("T", bound=Hashable)

_CATEGORIES = tuple(Category)
_PHASES = (None, *Phase)
_PHASE_NUMBERS = {phase: number for number, phase in enumerate(_PHASES)}
_CATEGORY_NUMBERS = {category: number for number, category in enumerate(_CATEGORIES)}


def stream_to_json(stream: Stream) -> dict[str, Any]:
    """The stream as lists, numbers and texts."""
    names: _Table[str] = _Table()
    tensors: _Table[tuple[tuple[int, ...], str, bool]] = _Table()
    attributes: _Table[str] = _Table()
    told: dict[str, dict[str, Scalar]] = {}

    def operands(found: tuple[Operand, ...]) -> list[int]:
        """Tensor and block of each, one after the other."""
        pairs = ((tensors.index((o.shape, o.dtype, o.channels_last)), o.block) for o in found)
        return list(chain.from_iterable(pairs))

    def attributes_of(operator: Operator) -> int:
        text = repr(operator.attributes)  # not the values: True and 1 are one key
        told.setdefault(text, dict(operator.attributes))
        return attributes.index(text)

    operators = [
        [
            operator.position,
            names.index(operator.name),
            operator.module,
            _PHASE_NUMBERS[operator.phase],
            int(operator.backward),
            operands(operator.inputs),
            operands(operator.outputs),
            attributes_of(operator),
        ]
        for operator in stream.operators
    ]
    return {
        "micro_batch_size": stream.micro_batch_size,
        "sizes": list(stream.sizes),
        "categories": [_CATEGORY_NUMBERS[category] for category in stream.categories],
        "modules": list(stream.modules),
        "module_names": list(stream.module_names),
        "streams": list(stream.streams) if any(stream.streams) else [],
        "events": list(stream.events),
        "marks": [
            [mark.position, mark.update, mark.micro_step, _PHASE_NUMBERS[mark.phase]]
            for mark in stream.marks
        ],
        "operators": operators,
        "names": list(names),
        "tensors": [[list(shape), dtype, int(last)] for shape, dtype, last in tensors],
        "attributes": [told[text] for text in attributes],
    }


def stream_from_json(data: dict[str, Any]) -> Stream:
    """The stream that `stream_to_json` wrote.

    Raises:
        KeyError, IndexError, TypeError, ValueError: it did not write this.
    """
    names, attributes = data["names"], data["attributes"]
    tensors = [(tuple(shape), dtype, bool(last)) for shape, dtype, last in data["tensors"]]
    known: dict[tuple[int, int], Operand] = {}

    def operands(numbers: list[int]) -> tuple[Operand, ...]:
        found = []
        for pair in zip(numbers[::2], numbers[1::2], strict=True):
            operand = known.get(pair)
            if operand is None:
                shape, dtype, last = tensors[pair[0]]
                operand = known[pair] = Operand(
                    shape=shape, dtype=dtype, block=pair[1], channels_last=last
                )
            found.append(operand)
        return tuple(found)

    return Stream(
        micro_batch_size=data["micro_batch_size"],
        sizes=tuple(data["sizes"]),
        categories=tuple(map(_CATEGORIES.__getitem__, data["categories"])),
        modules=tuple(data["modules"]),
        module_names=tuple(data["module_names"]),
        streams=tuple(data["streams"]) or (0,) * len(data["sizes"]),
        events=tuple(data["events"]),
        marks=tuple(
            Mark(position=position, update=update, micro_step=micro_step, phase=_PHASES[phase])
            for position, update, micro_step, phase in data["marks"]
        ),
        operators=tuple(
            Operator(
                position=position,
                name=names[name],
                module=module,
                phase=_PHASES[phase],
                backward=bool(backward),
                inputs=operands(inputs),
                outputs=operands(outputs),
                attributes=attributes[told],
            )
            for position, name, module, phase, backward, inputs, outputs, told in data["operators"]
        ),
    )


class _Table(Generic[T]):
    """Values that stand once, each named by its index."""

    def __init__(self) -> None:
        self._places: dict[T, int] = {}

    def index(self, value: T) -> int:
        """The place of a value, a new one where it is new."""
        return self._places.setdefault(value, len(self._places))

    def __iter__(self) -> Iterator[T]:
        return iter(self._places)
