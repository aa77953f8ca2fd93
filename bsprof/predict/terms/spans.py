"""Where in a traced run each part of the model works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bsprof.predict.stream import Stream
from bsprof.predict.terms.units import unit_of
from bsprof.records import Category, Phase

MICRO_STEPS = (Phase.FORWARD_BACKWARD, Phase.ACCUMULATION, Phase.FORWARD)


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroStep:
    """One micro-step: events `begin` up to `end`.

    Attributes:
        update: Which update it belongs to.
        is_last: Whether the optimizer step follows.
    """

    begin: int
    end: int
    update: int
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One unit's forward or backward pass in a micro-step: events `begin` up to `end`."""

    unit: int
    begin: int
    end: int


def run_start(stream: Stream) -> int:
    """Position at which the first update begins: the model is built."""
    return next((mark.position for mark in stream.marks if mark.update >= 0), len(stream.events))


def micro_steps(stream: Stream) -> list[MicroStep]:
    """All micro-steps, in order."""
    ends = [mark.position for mark in stream.marks[1:]] + [len(stream.events)]
    found = [
        (mark, end)
        for mark, end in zip(stream.marks, ends, strict=True)
        if mark.phase in MICRO_STEPS
    ]
    last = {mark.update: mark.micro_step for mark, _ in found}
    return [
        MicroStep(
            begin=mark.position,
            end=end,
            update=mark.update,
            is_last=mark.micro_step == last[mark.update],
        )
        for mark, end in found
    ]


def unit_spans(
    stream: Stream, step: MicroStep, units: Sequence[str], *, backward: bool
) -> list[Span]:
    """When each unit works in a micro-step, in the order in which they begin.

    A span begins before its first operator's outputs are allocated. What lies in no unit has no
    span: it is there all the time.
    """
    unit_of_module = [unit_of(name, units) for name in stream.module_names]
    spans: dict[int, Span] = {}
    before = step.begin
    for operator in stream.operators:
        if not step.begin <= operator.position <= step.end:
            continue
        unit = unit_of_module[operator.module] if operator.module >= 0 else -1
        in_step = operator.phase in MICRO_STEPS
        if in_step and operator.backward == backward and unit >= 0:
            begin = spans[unit].begin if unit in spans else before
            spans[unit] = Span(unit=unit, begin=begin, end=operator.position)
        before = operator.position
    return list(spans.values())


def allocations(stream: Stream) -> dict[int, int]:
    """Position of the event that allocates each storage."""
    return {event - 1: place for place, event in enumerate(stream.events) if event > 0}


def releases(stream: Stream) -> dict[int, int]:
    """Position of the event that frees each storage; without those that are never freed."""
    return {-event - 1: place for place, event in enumerate(stream.events) if event < 0}


def parameter_owners(stream: Stream) -> dict[int, int]:
    """Module of each storage of weights that a forward pass reads: whose operator reads it first.

    A moving average of the weights, which only the optimizer step touches, is not among them.
    """
    owners: dict[int, int] = {}
    for operator in stream.operators:
        if operator.phase in MICRO_STEPS and not operator.backward:
            for operand in operator.inputs:
                block = operand.block
                if block >= 0 and stream.categories[block] is Category.WEIGHTS:
                    owners.setdefault(block, operator.module)
    return owners


def live_gradients(stream: Stream) -> list[int]:
    """The gradients that are live together when most are, in the order they were allocated."""
    live: dict[int, None] = {}
    most: list[int] = []
    held = best = 0
    for event in stream.events:
        block = abs(event) - 1
        if stream.categories[block] is not Category.GRADIENTS:
            continue
        if event > 0:
            live[block] = None
            held += stream.sizes[block]
            if held > best:
                best, most = held, list(live)
        elif block in live:
            del live[block]
            held -= stream.sizes[block]
    return most
