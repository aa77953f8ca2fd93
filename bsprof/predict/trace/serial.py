"""A stream as compact JSON: columns in place of objects, repeated things once. No torch.

Numbers of a kind stand together, so that a general compressor finds what repeats.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from bsprof.predict.stream import Mark, Operand, Operator, Stream
from bsprof.records import Category, Phase

VERSION = 1


def stream_to_json(stream: Stream) -> str:
    """The stream as one line of JSON."""
    names = _Table()
    kinds = _Table()
    operands = _Table()
    calls = []
    for op in stream.operators:
        attributes = tuple(op.attributes.items())
        calls.append(
            (
                op.position,
                kinds.number((names.number(op.name), _phase(op.phase), op.backward, attributes)),
                op.module,
                _flat(operands, names, op.inputs),
                _flat(operands, names, op.outputs),
            )
        )
    categories = list(Category)
    return json.dumps(
        {
            "version": VERSION,
            "micro_batch_size": stream.micro_batch_size,
            "sizes": stream.sizes,
            "categories": [categories.index(c) for c in stream.categories],
            "category_names": [str(c) for c in categories],
            "modules": stream.modules,
            "module_names": stream.module_names,
            "streams": stream.streams,
            "events": stream.events,
            "marks": [(m.position, m.update, m.micro_step, _phase(m.phase)) for m in stream.marks],
            "names": names.values,
            "kinds": kinds.values,
            "operands": operands.values,
            "positions": [call[0] for call in calls],
            "calls": [call[1] for call in calls],
            "call_modules": [call[2] for call in calls],
            "inputs": [call[3] for call in calls],
            "outputs": [call[4] for call in calls],
        },
        separators=(",", ":"),
    )


def stream_from_json(text: str) -> Stream:
    """The stream that `stream_to_json` wrote.

    Raises:
        ValueError: not such a text, or one of another version.
    """
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise ValueError(f"not a stream of version {VERSION}: {text[:60]!r}")
    categories = [Category(name) for name in data["category_names"]]
    names = data["names"]
    kinds = [
        (names[name], _to_phase(phase), backward, dict(map(tuple, attributes)))
        for name, phase, backward, attributes in data["kinds"]
    ]
    shapes = [(tuple(shape), names[dtype], last) for shape, dtype, last in data["operands"]]
    made: dict[tuple[int, int], Operand] = {}

    def operands(pairs: Iterable[int]) -> tuple[Operand, ...]:
        numbers = iter(pairs)
        return tuple(operand(number, block) for number, block in zip(numbers, numbers, strict=True))

    def operand(number: int, block: int) -> Operand:
        found = made.get((number, block))
        if found is None:
            shape, dtype, last = shapes[number]
            found = Operand(shape=shape, dtype=dtype, block=block, channels_last=last)
            made[number, block] = found
        return found

    operators = []
    columns = ("positions", "calls", "call_modules", "inputs", "outputs")
    for position, kind, module, inputs, outputs in zip(
        *(data[column] for column in columns), strict=True
    ):
        name, phase, backward, attributes = kinds[kind]
        operators.append(
            Operator(
                position=position,
                name=name,
                module=module,
                phase=phase,
                backward=backward,
                inputs=operands(inputs),
                outputs=operands(outputs),
                attributes=attributes,
            )
        )
    return Stream(
        micro_batch_size=data["micro_batch_size"],
        sizes=tuple(data["sizes"]),
        categories=tuple(categories[number] for number in data["categories"]),
        modules=tuple(data["modules"]),
        module_names=tuple(data["module_names"]),
        streams=tuple(data["streams"]),
        events=tuple(data["events"]),
        marks=tuple(
            Mark(position=position, update=update, micro_step=step, phase=_to_phase(phase))
            for position, update, step, phase in data["marks"]
        ),
        operators=tuple(operators),
    )


class _Table:
    """Values by number, each once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        """The number of a value, which gets one if it has none."""
        # 1, 1.0 and True are equal and are not the same.
        key = (value, _types(value))
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.values)
            self.values.append(value)
        return found


def _types(value: Any) -> Any:
    return tuple(map(_types, value)) if isinstance(value, tuple) else type(value)


def _flat(operands: _Table, names: _Table, tensors: Sequence[Operand]) -> list[int]:
    """Number of the shape and block of each, one after the other."""
    flat = []
    for tensor in tensors:
        shape = (tensor.shape, names.number(tensor.dtype), tensor.channels_last)
        flat += [operands.number(shape), tensor.block]
    return flat


def _phase(phase: Phase | None) -> str | None:
    return None if phase is None else str(phase)


def _to_phase(name: str | None) -> Phase | None:
    return None if name is None else Phase(name)
