"""What cuDNN keeps of recurrent layers for their backward pass, larger or smaller than assumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Set

from bsprof.predict.stream import Stream

FORWARD = "aten._cudnn_rnn"
RESERVE_DTYPE = "uint8"
"""Of its outputs, only the reserve space is bytes."""


def reserve_storages(stream: Stream) -> frozenset[int]:
    """Storages of reserve space; its size is a formula (`bsprof.predict.cuda.recurrent`)."""
    return frozenset(
        operand.block
        for operator in stream.operators
        if operator.name == FORWARD
        for operand in operator.outputs
        if operand.dtype == RESERVE_DTYPE and operand.block >= 0
    )


def with_reserve(stream: Stream, storages: Set[int], factor: float) -> Stream:
    """The stream with these storages larger or smaller by a factor."""
    if not storages or factor == 1.0:
        return stream
    sizes = (round(factor * n) if i in storages else n for i, n in enumerate(stream.sizes))
    return dataclasses.replace(stream, sizes=tuple(sizes))
