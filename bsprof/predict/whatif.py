"""What would make a size fit that does not: changes that are traced or replayed, not estimated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from bsprof.errors import BsprofError
from bsprof.predict.allocator import Verdict
from bsprof.predict.eight_bit import with_eight_bit_state
from bsprof.predict.memory import MemoryPrediction, predict_memory
from bsprof.predict.room import Conditions
from bsprof.predict.stream import Stream
from bsprof.records import Change, Mode, Precision, Quantity, Scalar, WorkloadFacts, WorkloadSpec

SHARDED_OVER = 8
"""Ranks of the change that shards: one usual node."""
WORTH_ADDING = 0.01
"""Share of the peak that a change has to save to be put together with others."""
FIRST_BF16 = (8, 0)
"""First compute capability that multiplies bf16 on tensor cores."""

_OPTIMIZER_OPTION = "--optimizer-option"
_FP32 = (Precision.FP32, Precision.FP32_STRICT, Precision.TF32)
_HALF = (Precision.BF16, Precision.FP16)
_FUSED = ("adam", "adamw", "sgd", "adagrad")
_TO_EIGHT_BIT = {"Adam": "adam8bit", "AdamW": "adamw8bit"}
_OF_TORCH = ("fused", "foreach", "capturable", "differentiable", "maximize")
"""Options of torch's optimizers that those of bitsandbytes refuse, whatever their value."""

StreamOf = Callable[[WorkloadSpec, int], Stream]
"""The stream of a workload at a size; raises `BsprofError` where it cannot be traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idea:
    """A change to try.

    Attributes:
        name: As the middle of a sentence.
        options: Of `bsprof sweep`, that make it.
        spec: What is traced.
        eight_bit: Whether the optimizer's state is then rewritten to 8 bits.
        conditions: Under what it would run.
    """

    name: str
    options: tuple[str, ...]
    spec: WorkloadSpec
    eight_bit: bool = False
    conditions: Conditions


def changes_for(
    spec: WorkloadSpec,
    facts: WorkloadFacts,
    prediction: MemoryPrediction,
    conditions: Conditions,
    stream_of: StreamOf,
    on_idea: Callable[[str], None] = lambda _name: None,
) -> tuple[Change, ...]:
    """What each change would need at the size of a prediction; and together, if none suffices.

    Changes that cost least come first. Together means as many of them, in that order, as make the
    size fit; all of them where not even these do.

    Args:
        spec: The workload as it is.
        facts: Of it.
        prediction: Of a size that does not fit.
        conditions: Under what it was predicted.
        stream_of: Traces a changed workload.
        on_idea: Called with the name of each change before it is tried.
    """

    def tried(idea: Idea) -> Change | None:
        on_idea(idea.name)
        return _tried(idea, prediction, stream_of)

    alone = [(idea, tried(idea)) for idea in ideas(spec, facts, conditions)]
    found = [change for _, change in alone if change is not None]
    if any(change.fits for change in found):
        return tuple(found)
    least = WORTH_ADDING * prediction.device_used_bytes.value
    worth = [idea for idea, change in alone if change and change.saved_bytes.value > least]
    if len(worth) > 1:
        # All of them first: where that does not suffice, no part of it needs a trace.
        last = tried(together(worth, spec))
        if last is not None and last.fits:
            for count in range(2, len(worth)):
                fewer = tried(together(worth[:count], spec))
                if fewer is not None and fewer.fits:
                    last = fewer
                    break
        if last is not None:
            found.append(last)
    return tuple(found)


def together(parts: Sequence[Idea], base: WorkloadSpec) -> Idea:
    """Several changes of one workload as one; of those that set the same option, the last."""
    by_option = {idea.options[0]: idea for idea in parts}
    if any(idea.eight_bit for idea in parts):
        by_option.pop(_OPTIMIZER_OPTION, None)  # of another optimizer
    kept = list(by_option.values())
    changed: dict[str, Any] = {}
    for idea in kept:
        for field in fields(WorkloadSpec):
            value = getattr(idea.spec, field.name)
            if value != getattr(base, field.name):
                changed[field.name] = value
    spec = replace(base, **changed)
    sharing = max((idea.conditions for idea in kept), key=lambda given: given.world_size)
    return Idea(
        name=", ".join(idea.name for idea in kept[:-1]) + f" and {kept[-1].name}",
        options=tuple(option for idea in kept for option in idea.options),
        spec=spec,
        eight_bit=any(idea.eight_bit for idea in kept),
        conditions=replace(sharing, precision=spec.precision),
    )


def ideas(spec: WorkloadSpec, facts: WorkloadFacts, given: Conditions) -> Iterator[Idea]:
    """Changes that this workload has not made yet, those that cost least first."""
    trains = spec.mode is Mode.TRAIN

    def idea(name: str, *options: str, eight_bit: bool = False, **changes: Any) -> Idea:
        changed = replace(spec, **changes)
        precise = replace(given, precision=changed.precision)
        return Idea(
            name=name, options=options, spec=changed, eight_bit=eight_bit, conditions=precise
        )

    options: dict[str, Scalar] = {**spec.optimizer_options, "fused": True}
    if trains and spec.optimizer in _FUSED and not spec.optimizer_options.get("fused"):
        yield idea("a fused optimizer", _OPTIMIZER_OPTION, "fused=true", optimizer_options=options)
    if spec.precision in _FP32:
        capability = given.device.compute_capability
        half = Precision.AMP_BF16
        if capability is not None and capability < FIRST_BF16:
            half = Precision.AMP_FP16
        yield idea("mixed precision", "--precision", half.value, precision=half)
    if trains and spec.activation_checkpointing == "none":
        yield idea(
            "full activation checkpointing",
            "--activation-checkpointing",
            "full",
            activation_checkpointing="full",
        )
    if trains and (eight_bit := _TO_EIGHT_BIT.get(facts.optimizer or "")):
        refused = [name for name in spec.optimizer_options if name in _OF_TORCH]
        kept = {k: v for k, v in spec.optimizer_options.items() if k not in refused}
        without = f" without the option{'s' * (len(refused) > 1)} {' and '.join(refused)}"
        yield idea(
            "an 8-bit optimizer" + (without if refused else ""),
            "--optimizer",
            eight_bit,
            eight_bit=True,
            optimizer_options=kept,
        )
    if trains and given.world_size == 1:
        yield replace(
            idea(
                f"sharding over {SHARDED_OVER} ranks",
                "--world-size",
                str(SHARDED_OVER),
                "--parallel",
                "fsdp",
            ),
            conditions=replace(given, world_size=SHARDED_OVER, parallel="fsdp"),
        )
    if spec.precision not in _HALF:
        yield idea("bf16 weights", "--precision", "bf16", precision=Precision.BF16)
    length = spec.seq_len or facts.tokens_per_sample
    if length is not None and length > 1:
        yield idea("half the sequence length", "--seq-len", str(length // 2), seq_len=length // 2)


def _tried(idea: Idea, before: MemoryPrediction, stream_of: StreamOf) -> Change | None:
    """The change as predicted; None where the changed workload cannot be traced."""
    size = before.micro_batch_size
    try:
        stream = stream_of(idea.spec, size)
    except BsprofError:  # no blocks to recompute, an option that this optimizer does not have
        return None
    if idea.eight_bit:
        stream = with_eight_bit_state(stream)
    after = predict_memory(stream, idea.conditions)
    used, was = after.device_used_bytes, before.device_used_bytes
    # Both ends are off for the same reasons, so ends are compared with like ends.
    ends = sorted((was.low - used.low, was.high - used.high))
    return Change(
        name=idea.name,
        options=idea.options,
        micro_batch_size=size,
        device_used_bytes=used,
        saved_bytes=Quantity.ordered(was.value - used.value, *ends),
        fits=after.verdict is Verdict.FITS,
    )
