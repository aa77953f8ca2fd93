"""What a steady update asks of a device, in parts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bsprof.accounting.work import Work
from bsprof.predict.cost.caches import CachedCosts
from bsprof.predict.cost.compiled_loss import with_compiled_loss
from bsprof.predict.cost.multipliers import Multipliers
from bsprof.predict.cost.works import Costs
from bsprof.predict.module_groups import pattern_of
from bsprof.predict.stream import Mark, Operator, Stream
from bsprof.records import Category, Phase, Precision

Counted = tuple[Work, int]
"""A work, and how often it comes."""

_STEPS = (Phase.FORWARD, Phase.FORWARD_BACKWARD, Phase.ACCUMULATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Works of a part of an update, equal ones counted; their order says nothing.

    Attributes:
        works: Each once, with its count, in the order in which they first come.
        groups: The same by modules that are repeats of each other (`blocks.*.mlp.up`); empty for
            what no module did.
    """

    works: tuple[Counted, ...] = ()
    groups: Mapping[str, tuple[Counted, ...]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Counted]:
        return iter(self.works)

    def __len__(self) -> int:
        return len(self.works)

    @property
    def model_flops(self) -> int:
        """Of the mathematics."""
        return sum(work.model_flops * count for work, count in self.works)

    @property
    def hardware_flops(self) -> int:
        """As run, recomputed ones included."""
        return sum(work.flops * count for work, count in self.works)

    @property
    def bytes_moved(self) -> int:
        """Read and written."""
        return sum(work.bytes * count for work, count in self.works)

    @property
    def launches(self) -> int:
        """Kernels."""
        return sum(work.launches * count for work, count in self.works)

    @property
    def calls(self) -> int:
        """Operators that the host dispatches."""
        return sum(work.calls * count for work, count in self.works)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """Works of a steady update: of one micro-step, and of the optimizer step.

    Batches on their way to the device are not in it.

    Attributes:
        forward: Casts of weights under autocast included: they are made anew in every forward.
        backward: Of a micro-step whose gradients are new, as without accumulation; empty in
            inference.
        accumulation: What a later micro-step of a window has on top: gradients are added up.
            Empty where none was traced.
        optimizer: Unscaling, clipping, the optimizer, a moving average, and zeroing of gradients.
    """

    forward: Part
    backward: Part = Part()
    accumulation: Part = Part()
    optimizer: Part = Part()

    @property
    def model_flops(self) -> int:
        """Of a micro-step, without recomputation."""
        return self.forward.model_flops + self.backward.model_flops

    @property
    def hardware_flops(self) -> int:
        """Of a micro-step, as run."""
        return self.forward.hardware_flops + self.backward.hardware_flops

    @property
    def bytes_moved(self) -> int:
        """Of a micro-step."""
        return self.forward.bytes_moved + self.backward.bytes_moved

    @property
    def launches(self) -> int:
        """Of a micro-step."""
        return self.forward.launches + self.backward.launches

    @property
    def calls(self) -> int:
        """Of a micro-step."""
        return self.forward.calls + self.backward.calls


def steady_costs(
    stream: Stream,
    compute_capability: tuple[int, int] | None,
    precision: Precision,
    *,
    compiled_loss: bool = False,
    cache_bytes: float | None = None,
) -> StepCosts:
    """The last update of a traced run: its first micro-step, what later ones add, its end.

    Args:
        stream: Traced with the semantics of the device that it is priced for.
        compute_capability: Of that device; None where it is not one of NVIDIA's.
        precision: Of the workload.
        compiled_loss: Whether the loss is computed within what is compiled, as where a model
            returns it; a workload's own loss runs outside. Without effect on an eager run.
        cache_bytes: Last cache of a processor, outside of which works may find their operands.
    """
    multipliers = Multipliers(compute_capability=compute_capability, precision=precision)
    costs = (
        Costs(multipliers, stream.events)
        if cache_bytes is None
        else CachedCosts(multipliers, stream, cache_bytes)
    )
    first, later, end = _parts(stream)
    zeroing = [op for op in first if _zeroes(op, stream)]
    if zeroing:
        moved = {id(op) for op in zeroing}
        first = [op for op in first if id(op) not in moved]
    if later:
        first = _without_next_batch(first)
    if compiled_loss:
        first, later = with_compiled_loss(first), with_compiled_loss(later)
    collected = _Collected(stream.module_names, costs)
    passes = collected.passes(first)
    accumulation = Part()
    if later:
        # Compared without what caches hold, which differs between micro-steps.
        plain = _Collected(stream.module_names, Costs(multipliers, stream.events))
        accumulation = _on_top(plain.passes(later)[True], plain.passes(first)[True])
    return StepCosts(
        forward=passes[False],
        backward=passes[True],
        accumulation=accumulation,
        optimizer=collected.part([*end, *zeroing]),
    )


def _parts(
    stream: Stream,
) -> tuple[Sequence[Operator], Sequence[Operator], Sequence[Operator]]:
    """Operators of the last update: of its first micro-step, its last if there are several, and
    from the optimizer step on."""
    marks, operators = stream.marks, stream.operators
    update = max((mark.update for mark in marks), default=0)
    position = next((mark.position for mark in marks if mark.update == update), 0)
    number = max(0, bisect_left(marks, position, key=_position) - 1)
    found: dict[int, list[Operator]] = {}
    for operator in operators[bisect_left(operators, position, key=_position) :]:
        # Between two events a part may end and the next begin: the phase says which it was.
        sure = bisect_left(marks, operator.position, key=_position) - 1
        last = bisect_right(marks, operator.position, key=_position) - 1
        number = max(number, sure)
        while number < last and marks[number].phase is not operator.phase:
            number += 1
        found.setdefault(number, []).append(operator)
    first: list[Operator] = []
    later: list[Operator] = []
    end: list[Operator] = []
    for number, members in found.items():
        mark = marks[number]
        if mark.update != update:
            continue
        if mark.phase not in _STEPS:
            end += members
        elif mark.micro_step == 0:
            first = members
        else:
            later = members
    return first, later, end


def _position(thing: Mark | Operator) -> int:
    return thing.position


def _without_next_batch(operators: Sequence[Operator]) -> Sequence[Operator]:
    """A micro-step without what runs behind its backward pass: the next one's batch is made."""
    end = len(operators)
    while end and not operators[end - 1].backward:
        end -= 1
    return operators[:end] or operators


def _zeroes(operator: Operator, stream: Stream) -> bool:
    """Whether it zeroes gradients: that ends an update, wherever a loop has it."""
    if operator.name not in ("aten.zero_", "aten._foreach_zero_"):
        return False
    blocks = {operand.block for operand in operator.inputs}
    return all(b >= 0 and stream.categories[b] is Category.GRADIENTS for b in blocks)


class _Collected:
    """Works by part and module.

    Args:
        module_names: Of the stream.
        costs: How works are made of operators.
    """

    def __init__(self, module_names: Sequence[str], costs: Costs) -> None:
        self._costs = costs
        self._patterns = [pattern_of(name) for name in module_names]

    def passes(self, operators: Iterable[Operator]) -> tuple[Part, Part]:
        """Forward and backward of a micro-step."""
        works: tuple[list[tuple[str, Work]], list[tuple[str, Work]]] = [], []
        for operator, made in self._costs.of(operators):
            module = self._patterns[operator.module]
            works[operator.backward].extend((module, work) for work in made)
        return _part(works[0]), _part(works[1])

    def part(self, operators: Iterable[Operator]) -> Part:
        """All of them together."""
        return _part(
            [
                (self._patterns[operator.module], work)
                for operator, made in self._costs.of(operators)
                for work in made
            ]
        )


def _part(works: Iterable[tuple[str, Work]]) -> Part:
    return _counted(Counter(works))


def _counted(counts: Mapping[tuple[str, Work], int]) -> Part:
    totals: Counter[Work] = Counter()
    groups: dict[str, list[Counted]] = {}
    for (module, work), count in counts.items():
        totals[work] += count
        groups.setdefault(module, []).append((work, count))
    return Part(
        works=tuple(totals.items()),
        groups={module: tuple(counted) for module, counted in groups.items()},
    )


def _on_top(larger: Part, smaller: Part) -> Part:
    """What of one part is not in another."""
    counts = {
        (module, work): count
        for module, counted in larger.groups.items()
        for work, count in counted
    }
    return _counted(
        Counter(counts)
        - Counter(
            {
                (module, work): count
                for module, counted in smaller.groups.items()
                for work, count in counted
            }
        )
    )
