"""The event stream of a traced run: every storage that is made and dropped, in order.

Plain Python on purpose: the worker that traces loads torch, the side that replays does not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from bsprof.records import Category, Phase, Scalar


@functools.cache
def _item_bytes(dtype: str) -> int:
    """By the bits in the type's name; one byte for `bool` and for what is packed in less."""
    bits = re.search(r"\d+", dtype)
    return 1 if bits is None else max(1, int(bits[0]) // 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Where a part of the run begins.

    Attributes:
        position: Number of events before it.
        update: Which update, from 0; -1 while the model is built.
        micro_step: Which micro-step of that update, from 0; -1 outside micro-steps.
        phase: None while the model, the optimizer and the batch are made and between updates.
    """

    position: int
    update: int
    micro_step: int
    phase: Phase | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A tensor that an operator reads or makes.

    Attributes:
        shape: Elements along each dimension.
        dtype: As torch writes it, without `torch.`: `float32`, `bfloat16`, `int64`.
        block: The storage it lies in; -1 when it is not followed (a host tensor).
        channels_last: Whether its memory runs over channels first.
    """

    shape: tuple[int, ...]
    dtype: str
    block: int = -1
    channels_last: bool = False

    @property
    def item_bytes(self) -> int:
        """Of one element."""
        return _item_bytes(self.dtype)

    @property
    def bytes(self) -> int:
        """Of all its elements, lying densely."""
        return prod(self.shape) * self.item_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator that does work on the device.

    Attributes:
        position: Number of events before it; what its outputs allocated is among them, so a
            workspace that is in use while it runs is inserted here.
        name: Of the overload packet: `aten.convolution_backward`.
        module: Index into `Stream.module_names`: whose forward called it, or made what its
            backward belongs to.
        phase: The part of an update it runs in.
        backward: Whether it runs in a backward pass.
        inputs, outputs: In order, lists flattened.
        attributes: What else decides its work: stride, padding, groups, causal, ...; lists as
            text of numbers with commas.
    """

    position: int
    name: str
    module: int
    phase: Phase | None
    backward: bool
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    attributes: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """All storages of a run at one micro-batch size, and what happens to them, in order.

    Storage i is `sizes[i]` bytes (as requested, not rounded), belongs to `categories[i]`, was made
    by module `module_names[modules[i]]`, and lies on CUDA stream `streams[i]` (0: the default).
    Storages that exist before anything is traced (weights, buffers, the batch) are allocated by
    the first events, in the order in which a program would make them.

    Attributes:
        micro_batch_size: Samples of one micro-step.
        events: `i + 1` where storage i is allocated, `-(i + 1)` where it is freed. A storage that
            is resized counts as freed and allocated anew, as another one.
        marks: Where parts of the run begin, in order.
        operators: In order.
    """

    micro_batch_size: int
    sizes: tuple[int, ...]
    categories: tuple[Category, ...]
    modules: tuple[int, ...]
    module_names: tuple[str, ...]
    streams: tuple[int, ...]
    events: tuple[int, ...]
    marks: tuple[Mark, ...]
    operators: Sequence[Operator]


@dataclass(frozen=True, slots=True, kw_only=True)
class Insertion:
    """Memory that something outside the traced operators takes from the allocator.

    Attributes:
        position: Number of events of the stream before it.
        bytes: Requested; 0 is skipped.
        until: Position at which it is freed; the same as `position` frees it at once (a
            workspace); None keeps it to the end.
        category: Whose it is at the peak.
        name: What it is, for the answer: `cuBLAS workspace`.
        stream: CUDA stream.
    """

    position: int
    bytes: int
    until: int | None
    name: str
    category: Category = Category.LIBRARIES
    stream: int = 0
