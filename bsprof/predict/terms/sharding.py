"""A traced run of one device rewritten as one rank's share of a data-parallel run.

Weights, gradients and optimizer state shrink to a rank's share as a strategy says (ZeRO, arXiv
1910.02054; FSDP2: `torch.distributed.fsdp.fully_shard`). What is gathered or reduced in full is
put in where a unit's forward and backward pass need it. Positions of events stay as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

from bsprof.predict.stream import Insertion, Stream
from bsprof.predict.terms.collectives import bucket_insertions
from bsprof.predict.terms.spans import (
    MicroStep,
    Span,
    allocations,
    live_gradients,
    micro_steps,
    parameter_owners,
    releases,
    unit_spans,
)
from bsprof.predict.terms.units import find_units, unit_of
from bsprof.records import Category, Phase

GATHER_STREAM = 1
REDUCE_STREAM = 2

GATHERED = "gathered parameters"
GATHERING = "all-gather buffer"
FULL_GRADIENTS = "gradients before reduction"
REDUCING = "reduce-scatter buffer"


class Strategy(StrEnum):
    """How ranks share work; names follow ZeRO's stages, FSDP is stage 3 unit by unit."""

    DDP = "ddp"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"
    FSDP = "fsdp"


SHARDED = {
    Strategy.DDP: frozenset[Category](),
    Strategy.ZERO1: frozenset({Category.OPTIMIZER_STATE}),
    Strategy.ZERO2: frozenset({Category.OPTIMIZER_STATE, Category.GRADIENTS}),
    Strategy.ZERO3: frozenset({Category.OPTIMIZER_STATE, Category.GRADIENTS, Category.WEIGHTS}),
    Strategy.FSDP: frozenset({Category.OPTIMIZER_STATE, Category.GRADIENTS, Category.WEIGHTS}),
}


SYNCS_EACH_STEP = frozenset({Strategy.ZERO2, Strategy.ZERO3})
"""Reduce gradients in every micro-step: DeepSpeed refuses `no_sync` where they are partitioned
(`runtime/engine.py`)."""


def parallelise(
    stream: Stream,
    strategy: Strategy | str,
    world_size: int,
    units: Sequence[str] | None = None,
    *,
    no_sync: bool | None = None,
    reshard_after_forward: bool = True,
    gradient_as_bucket_view: bool = False,
) -> tuple[Stream, list[Insertion]]:
    """One rank's stream, and what collectives and gathered parameters add to it.

    Args:
        stream: The run on one device.
        strategy: See `Strategy`.
        world_size: Ranks; one changes nothing.
        units: Prefixes of the names of modules that are gathered as one; None finds repeated
            blocks. What lies in none of them is the root unit, gathered for the whole
            micro-step.
        no_sync: Whether gradients are reduced in the last micro-step of an accumulation window
            only, so that they stay in full until then; None is as the strategy does, see
            `SYNCS_EACH_STEP`.
        reshard_after_forward: Units drop their full parameters after their forward pass.
        gradient_as_bucket_view: For DDP: gradients are views of the buckets, not copied there.

    Raises:
        ValueError: Unknown strategy, or less than one rank.
    """
    strategy = Strategy(strategy)
    if world_size < 1:
        raise ValueError(f"a run has at least one rank, not {world_size}")
    if world_size == 1:
        return stream, []
    if strategy is Strategy.DDP:
        return replicate(stream, as_view=gradient_as_bucket_view)
    names = find_units(stream.module_names) if units is None else tuple(units)
    insertions: list[Insertion] = []
    steps = micro_steps(stream)
    sharded = SHARDED[strategy]
    if Category.WEIGHTS in sharded:
        for step in steps:
            insertions += gather(stream, step, names, reshard=reshard_after_forward)
    if Category.GRADIENTS in sharded:
        waits = strategy not in SYNCS_EACH_STEP if no_sync is None else no_sync
        insertions += reduce(stream, steps, names, no_sync=waits)
    return share(stream, sharded, world_size), insertions


def replicate(stream: Stream, *, as_view: bool) -> tuple[Stream, list[Insertion]]:
    """DDP: buckets of all gradients; as views, a gradient's own storage lives but a moment."""
    insertions = bucket_insertions(stream, as_view=as_view)
    if not as_view:
        return stream, insertions
    where = allocations(stream)
    sizes = list(stream.sizes)
    for block, category in enumerate(stream.categories):
        if category is Category.GRADIENTS and block in where:
            place = where[block] + 1
            insertions.append(
                Insertion(
                    position=place,
                    bytes=sizes[block],
                    until=place,
                    name=FULL_GRADIENTS,
                    category=Category.GRADIENTS,
                    stream=stream.streams[block],
                )
            )
            sizes[block] = 0
    return dataclasses.replace(stream, sizes=tuple(sizes)), insertions


def share(stream: Stream, sharded: frozenset[Category], world_size: int) -> Stream:
    """Storages of sharded categories at a rank's share, padded to equal parts.

    The optimizer works on its share alone, so its temporaries shrink with it.
    """
    in_optimizer = optimizer_temporaries(stream)
    sizes = tuple(
        -(-size // world_size)
        if category in sharded or (sharded and block in in_optimizer)
        else size
        for block, (size, category) in enumerate(zip(stream.sizes, stream.categories, strict=True))
    )
    return dataclasses.replace(stream, sizes=sizes)


def optimizer_temporaries(stream: Stream) -> set[int]:
    """Temporaries that are allocated during optimizer steps."""
    ends = [mark.position for mark in stream.marks[1:]] + [len(stream.events)]
    found = set()
    for mark, end in zip(stream.marks, ends, strict=True):
        if mark.phase is Phase.OPTIMIZER_STEP:
            blocks = (event - 1 for event in stream.events[mark.position : end] if event > 0)
            found |= {b for b in blocks if stream.categories[b] is Category.TEMPORARIES}
    return found


def gather(
    stream: Stream, step: MicroStep, units: Sequence[str], *, reshard: bool
) -> list[Insertion]:
    """Full parameters around each unit's forward and backward pass of a micro-step.

    While a unit computes, the next one's parameters are gathered into a flat buffer on a stream
    of their own; it is given up when they are copied out of it. The root unit stays in full.
    """
    full = unit_bytes(stream, Category.WEIGHTS, units)
    forward = unit_spans(stream, step, units, backward=False)
    backward = unit_spans(stream, step, units, backward=True)
    passes = [forward, backward] if reshard else [forward]
    last = {span.unit: span.end for span in backward}

    def end(span: Span) -> int:
        return span.end if reshard else max(span.end, last.get(span.unit, 0))

    held = [(full[-1], step.begin, step.end)]
    held += [(full[span.unit], span.begin, end(span)) for spans in passes for span in spans]
    ahead = [
        (full[following.unit], span.begin, following.begin)
        for spans in passes
        for span, following in pairwise(spans)
    ]
    return [
        *(block(size, begin, until, GATHERED, Category.WEIGHTS) for size, begin, until in held),
        *(block(*buffer, GATHERING, on=GATHER_STREAM) for buffer in ahead),
    ]


def reduce(
    stream: Stream, steps: Sequence[MicroStep], units: Sequence[str], *, no_sync: bool
) -> list[Insertion]:
    """Gradients in full until a unit's backward pass ends and they are reduced to shares.

    The buffer that they are reduced from is filled before they go. It lives, on a stream of its
    own, until the next unit fills one.
    """
    full = unit_bytes(stream, Category.GRADIENTS, units)
    where, freed = allocations(stream), releases(stream)
    gradients = [b for b, c in enumerate(stream.categories) if c is Category.GRADIENTS]
    unit_of_module = [unit_of(name, units) for name in stream.module_names]
    spans_of = {step: unit_spans(stream, step, units, backward=True) for step in steps}
    insertions = []
    for step in steps:
        if step.is_last or not no_sync:
            done = step.end - 1  # the root's is waited for before the optimizer steps
            root = Span(unit=-1, begin=done, end=done)
            for span, until in in_turn([*spans_of[step], root], step.end):
                insertions.append(
                    block(full[span.unit], span.end, until, REDUCING, on=REDUCE_STREAM)
                )
        syncing = step
        if no_sync:
            syncing = next(s for s in steps if s.update == step.update and s.is_last)
        ends = {span.unit: span.end for span in spans_of[syncing]}
        for gradient in gradients:
            if not step.begin <= where.get(gradient, -1) < step.end:
                continue
            begin = where[gradient] + 1
            end = ends.get(unit_of_module[stream.modules[gradient]], syncing.end) + 1
            until = max(begin, min(end, freed.get(gradient, end), syncing.end))
            size = stream.sizes[gradient]
            insertions.append(block(size, begin, until, FULL_GRADIENTS, Category.GRADIENTS))
    return insertions


def unit_bytes(stream: Stream, category: Category, units: Sequence[str]) -> dict[int, int]:
    """Full bytes of each unit's weights or gradients, of one set of them; -1 is the root."""
    if category is Category.GRADIENTS:
        owners = {storage: stream.modules[storage] for storage in live_gradients(stream)}
    else:
        owners = parameter_owners(stream)
    totals = dict.fromkeys(range(-1, len(units)), 0)
    for storage, module in owners.items():
        totals[unit_of(stream.module_names[module], units)] += stream.sizes[storage]
    return totals


def in_turn(spans: Sequence[Span], last: int) -> list[tuple[Span, int]]:
    """Each span with the moment when the next one has filled its buffer; the end is `last`."""
    moments = [min(span.end + 1, last) for span in spans[1:]]
    return list(zip(spans, [*moments, min(spans[-1].end + 1, last)], strict=True))


def block(
    size: int,
    begin: int,
    end: int,
    name: str,
    category: Category = Category.LIBRARIES,
    on: int = 0,
) -> Insertion:
    """Memory held from one position to another."""
    return Insertion(position=begin, bytes=size, until=end, name=name, category=category, stream=on)
