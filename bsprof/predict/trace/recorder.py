"""Writes down what happens to storages, and turns it into a `Stream` at the end. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bsprof.predict.stream import Mark, Operand, Operator, Stream
from bsprof.records import Category, Phase, Scalar

UNFOLLOWED = -1

RawOperand = tuple[tuple[int, ...], str, int, bool]
"""Shape, type, block, channels last: the fields of an `Operand`."""

RawOperator = tuple[
    int, str, int, Phase | None, bool, list[RawOperand], list[RawOperand], dict[str, Any]
]
"""The fields of an `Operator`, in order; lists in attributes are not yet text."""


class Recorder:
    """Storages, events, marks and operators of a run, as they come.

    Storages are named by their index. What a storage is for is known late: `categories` is filled
    in afterwards; what is still open at the end is temporary.
    """

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.categories: list[Category | None] = []
        self.modules: list[int] = []
        self.events: list[int] = []
        self.alive: list[bool] = []
        self.operators: list[RawOperator] = []
        self._marks: list[Mark] = []

    def allocate(self, size: int, module: int) -> int:
        """A new storage of `size` bytes; its index."""
        index = len(self.sizes)
        self.sizes.append(size)
        self.categories.append(None)
        self.modules.append(module)
        self.alive.append(True)
        self.events.append(index + 1)
        return index

    def free(self, index: int) -> None:
        """The storage is gone."""
        self.alive[index] = False
        self.events.append(-(index + 1))

    def mark(self, update: int, micro_step: int, phase: Phase | None) -> None:
        """From here on it is that part of the run."""
        self._marks.append(
            Mark(position=len(self.events), update=update, micro_step=micro_step, phase=phase)
        )

    def label(self, index: int, category: Category) -> None:
        """Whose a storage is, whatever was thought before."""
        self.categories[index] = category

    def label_alive(self, indices: Iterable[int], category: Category) -> None:
        """Whose storages are that are alive and belong to nobody."""
        for index in indices:
            if self.alive[index] and self.categories[index] is None:
                self.categories[index] = category

    def stream(self, micro_batch_size: int, module_names: Sequence[str]) -> Stream:
        """All that was recorded."""
        self._order_frees()
        return Stream(
            micro_batch_size=micro_batch_size,
            sizes=tuple(self.sizes),
            categories=tuple(category or Category.TEMPORARIES for category in self.categories),
            modules=tuple(self.modules),
            module_names=tuple(module_names),
            streams=(0,) * len(self.sizes),
            events=tuple(self.events),
            marks=tuple(self._marks),
            operators=tuple(_operators(self.operators)),
        )

    def _order_frees(self) -> None:
        """Put storages that are dropped at once into the order of their making.

        The end of an autocast block drops its casts in the order of addresses, another in every
        run. Nothing happens between, so an allocator is left in the same state.
        """
        borders = {mark.position for mark in self._marks} | {op[0] for op in self.operators}
        events = self.events
        start = None
        for position in range(len(events) + 1):
            frees = position < len(events) and events[position] < 0
            if start is not None and (not frees or position in borders):
                events[start:position] = sorted(events[start:position], reverse=True)
                start = None
            if frees and start is None:
                start = position


def _operators(raw: Iterable[RawOperator]) -> Iterable[Operator]:
    operands: dict[RawOperand, Operand] = {}

    def operand(fields: RawOperand) -> Operand:
        made = operands.get(fields)
        if made is None:
            shape, dtype, block, channels_last = fields
            made = Operand(shape=shape, dtype=dtype, block=block, channels_last=channels_last)
            operands[fields] = made
        return made

    for position, name, module, phase, backward, inputs, outputs, attributes in raw:
        yield Operator(
            position=position,
            name=name,
            module=module,
            phase=phase,
            backward=backward,
            inputs=tuple(map(operand, inputs)),
            outputs=tuple(map(operand, outputs)),
            attributes={key: _scalar(value) for key, value in attributes.items()},
        )


def _scalar(value: Any) -> Scalar:
    """An attribute's value; lists as text of numbers with commas."""
    if isinstance(value, list | tuple):
        return ",".join(str(int(v) if isinstance(v, bool) else v) for v in value)
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
