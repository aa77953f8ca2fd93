"""Streams at every micro-batch size from two traces, where that is exact. No torch.

Two runs of one program at sizes b1 and b2 are taken for one family if the same things happen in
the same order and every number in them is affine in b. Two points alone prove nothing: b * b
passes through two points as well as a line does. So the shapes have to show it. Each dimension is
c + s * b with whole s >= 0 and c >= 0 (a square, or pairs of samples, through two points has
c < 0), and a tensor has at most one dimension that depends on b: then its elements are affine in
b, and so are the bytes of the storage it fills.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bsprof.predict.stream import Operand, Operator, Stream
from bsprof.predict.trace.lines import ChangingOperator, Line, Operators
from bsprof.records import Scalar

SMALLEST = 2
"""Dimensions of one are special (any stride will do, nothing to copy): a size of one is traced."""
COUNTS = frozenset(("flops", "hardware_flops", "moved", "reads"))
"""Attributes that say what an operator computes and moves."""

_NUMBERS = re.compile(r"-?\d+(?:,-?\d+)*")


class NotAffine(Exception):
    """Two streams are not of one family; the message says where they part."""


class StreamFamily:
    """The streams of one program at every micro-batch size from `SMALLEST` up."""

    def __init__(
        self,
        low: Stream,
        sizes: Sequence[Line],
        changes: Mapping[int, ChangingOperator],
    ) -> None:
        self._low = low
        self._sizes = tuple(sizes)
        self._changes = changes

    @classmethod
    def of(cls, low: Stream, high: Stream) -> StreamFamily:
        """The family of two streams of different sizes.

        Raises:
            NotAffine: they differ in more than sizes, or sizes do not follow lines.
        """
        if low.micro_batch_size > high.micro_batch_size:
            low, high = high, low
        if low.micro_batch_size == high.micro_batch_size:
            raise ValueError("a family takes two sizes")
        _check_structure(low, high)
        lines = _Lines(low.micro_batch_size, high.micro_batch_size)
        changes = {
            number: change
            for number, (one, other) in enumerate(zip(low.operators, high.operators, strict=True))
            if (change := lines.operator(one, other)) is not None
        }
        sizes = [
            lines.through(one, other, f"storage {i} of {low.module_names[low.modules[i]]!r}")
            for i, (one, other) in enumerate(zip(low.sizes, high.sizes, strict=True))
        ]
        _check_proven(low, high, sizes)
        return cls(low, sizes, changes)

    def at(self, micro_batch_size: int) -> Stream:
        """The stream of a size; its operators are made when they are first looked at.

        Raises:
            ValueError: below `SMALLEST`.
        """
        if micro_batch_size < SMALLEST and micro_batch_size != self._low.micro_batch_size:
            raise ValueError(f"a family begins at {SMALLEST} samples, not {micro_batch_size}")
        return replace(
            self._low,
            micro_batch_size=micro_batch_size,
            sizes=tuple(line.constant + line.slope * micro_batch_size for line in self._sizes),
            operators=Operators(self._low.operators, self._changes, micro_batch_size),
        )


class _Lines:
    """Lines through the values at two sizes."""

    def __init__(self, low: int, high: int) -> None:
        self._low = low
        self._apart = high - low

    def through(self, low: int, high: int, what: str) -> Line:
        """The line, if it is one that counts of elements and bytes can follow."""
        if low == high:
            return Line(low, 0)
        slope, rest = divmod(high - low, self._apart)
        constant = low - slope * self._low
        if rest or slope < 0 or constant < 0:
            raise NotAffine(
                f"{what} goes from {low} to {high} between {self._low} and "
                f"{self._low + self._apart} samples: not in proportion"
            )
        return Line(constant, slope)

    def near(self, low: int, high: int) -> Line:
        """The whole line nearest to the one through two counts, and exact where there is one.

        Counts follow from shapes; they say nothing on whether sizes scale.
        """
        slope = round((high - low) / self._apart)
        return Line(low - slope * self._low, slope)

    def operator(self, low: Operator, high: Operator) -> ChangingOperator | None:
        """What of an operator depends on the size; None if nothing does."""
        if low == high:
            return None
        if (low.name, low.position, low.module, low.phase, low.backward) != (
            high.name,
            high.position,
            high.module,
            high.phase,
            high.backward,
        ):
            raise NotAffine(f"{high.name} at the larger size stands where {low.name} stood")
        return ChangingOperator(
            inputs=self._shapes(low.inputs, high.inputs, low.name),
            outputs=self._shapes(low.outputs, high.outputs, low.name),
            attributes=self._attributes(low, high),
        )

    def _shapes(
        self, low: Sequence[Operand], high: Sequence[Operand], name: str
    ) -> tuple[tuple[Line, ...] | None, ...]:
        if len(low) != len(high):
            raise NotAffine(f"{name} has {len(low)} operands, and {len(high)} at the larger size")
        return tuple(self._shape(one, other, name) for one, other in zip(low, high, strict=True))

    def _shape(self, low: Operand, high: Operand, name: str) -> tuple[Line, ...] | None:
        if low == high:
            return None
        same = (low.dtype, low.block) == (high.dtype, high.block)
        if not same or len(low.shape) != len(high.shape):
            raise NotAffine(f"an operand of {name} is {high} at the larger size, not {low}")
        if low.channels_last != high.channels_last:
            raise NotAffine(f"an operand of {name} is laid out otherwise at the larger size")
        lines = tuple(
            self.through(one, other, f"a dimension of {name}")
            for one, other in zip(low.shape, high.shape, strict=True)
        )
        if sum(1 for line in lines if line.slope) > 1:
            raise NotAffine(
                f"an operand of {name} has two dimensions that grow: {low.shape}, {high.shape}"
            )
        return lines

    def _attributes(self, low: Operator, high: Operator) -> dict[str, tuple[Line, ...]]:
        if low.attributes.keys() != high.attributes.keys():
            raise NotAffine(f"{low.name} has other attributes at the larger size")
        found = {}
        for key, one in low.attributes.items():
            other = high.attributes[key]
            if one == other:
                continue
            parts, others = _numbers(one), _numbers(other)
            if parts is None or others is None or len(parts) != len(others):
                raise NotAffine(f"{key} of {low.name} is {other} at the larger size, not {one}")
            if key in COUNTS:
                found[key] = tuple(map(self.near, parts, others))
                continue
            found[key] = tuple(
                self.through(a, b, f"{key} of {low.name}")
                for a, b in zip(parts, others, strict=True)
            )
        return found


def _numbers(value: Scalar) -> list[int] | None:
    """The whole numbers of an attribute; None where it is something else."""
    if isinstance(value, str) and _NUMBERS.fullmatch(value):
        return [int(part) for part in value.split(",")]
    return [value] if isinstance(value, int) and not isinstance(value, bool) else None


def _check_structure(low: Stream, high: Stream) -> None:
    """The same storages, events and marks.

    Raises:
        NotAffine: naming the first thing that differs.
    """
    if len(low.operators) != len(high.operators):
        for one, other in zip(low.operators, high.operators, strict=False):
            if one.name != other.name:
                raise NotAffine(f"{other.name} runs at the larger size where {one.name} ran")
        raise NotAffine(f"{len(low.operators)} operators, {len(high.operators)} at the larger size")
    for what in ("module_names", "modules", "streams", "categories", "marks", "events"):
        if getattr(low, what) != getattr(high, what):
            raise NotAffine(f"storages are made or dropped otherwise at the larger size ({what})")


def _check_proven(low: Stream, high: Stream, sizes: Sequence[Line]) -> None:
    """Every storage that grows is filled, or filled to a constant share, by a tensor that grows.

    Raises:
        NotAffine: naming a storage of which no shape shows how it grows.
    """
    growing = {i for i, line in enumerate(sizes) if line.slope}
    for one, other in zip(low.operators, high.operators, strict=True):
        pairs = zip((*one.inputs, *one.outputs), (*other.inputs, *other.outputs), strict=True)
        for small, large in pairs:
            i = small.block
            # One dimension of `small` grows, so its bytes are a line; the storage's is the same
            # line, or a multiple of one without a constant.
            if i in growing and small.bytes * high.sizes[i] == large.bytes * low.sizes[i]:
                whole = small.bytes == low.sizes[i]
                if whole or sizes[i].constant == 0:
                    growing.discard(i)
    if growing:
        i = min(growing)
        raise NotAffine(
            f"no shape shows how {low.sizes[i]} bytes of {low.module_names[low.modules[i]]!r} grow "
            f"to {high.sizes[i]}"
        )
