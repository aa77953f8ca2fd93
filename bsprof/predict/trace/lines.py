"""Numbers that grow with the micro-batch along a line, and operators made of them. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from bsprof.predict.stream import Operand, Operator
from bsprof.records import Scalar


@dataclass(frozen=True, slots=True)
class Line:
    """c + s * b."""

    constant: int
    slope: int

    def at(self, size: int) -> int:
        """Its value at a micro-batch size."""
        return self.constant + self.slope * size


@dataclass(frozen=True, slots=True)
class ChangingOperator:
    """What of an operator depends on the size: shapes of operands, and attributes."""

    inputs: tuple[tuple[Line, ...] | None, ...]
    outputs: tuple[tuple[Line, ...] | None, ...]
    attributes: Mapping[str, tuple[Line, ...]]

    def at(self, operator: Operator, size: int) -> Operator:
        """The operator at a size."""
        attributes: Mapping[str, Scalar] = operator.attributes
        if self.attributes:
            attributes = dict(attributes)
            for key, parts in self.attributes.items():
                is_text = isinstance(attributes[key], str)
                values = [line.at(size) for line in parts]
                attributes[key] = ",".join(map(str, values)) if is_text else values[0]
        return Operator(
            position=operator.position,
            name=operator.name,
            module=operator.module,
            phase=operator.phase,
            backward=operator.backward,
            inputs=_operands(operator.inputs, self.inputs, size),
            outputs=_operands(operator.outputs, self.outputs, size),
            attributes=attributes,
        )


class Operators(Sequence[Operator]):
    """The operators of a size, made when they are first looked at."""

    def __init__(
        self, low: Sequence[Operator], changes: Mapping[int, ChangingOperator], size: int
    ) -> None:
        self._low = low
        self._changes = changes
        self._size = size
        self._made: tuple[Operator, ...] | None = None

    def __len__(self) -> int:
        return len(self._low)

    @overload
    def __getitem__(self, index: int) -> Operator: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Operator]: ...
    def __getitem__(self, index: int | slice) -> Operator | Sequence[Operator]:
        return self._all()[index]

    def __iter__(self) -> Iterator[Operator]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._all())

    def _all(self) -> tuple[Operator, ...]:
        if self._made is None:
            changes, size = self._changes, self._size
            self._made = tuple(
                changes[number].at(operator, size) if number in changes else operator
                for number, operator in enumerate(self._low)
            )
        return self._made


def _operands(
    operands: Sequence[Operand], changes: Sequence[tuple[Line, ...] | None], size: int
) -> tuple[Operand, ...]:
    return tuple(
        operand
        if lines is None
        else Operand(
            shape=tuple([line.constant + line.slope * size for line in lines]),
            dtype=operand.dtype,
            block=operand.block,
            channels_last=operand.channels_last,
        )
        for operand, lines in zip(operands, changes, strict=True)
    )
