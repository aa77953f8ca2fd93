"""What is known about one operator: its class, its FLOPs, its bytes. No torch is imported here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Arguments = Mapping[str, Any]
"""All arguments of one call by their schema name, defaults filled in."""

FlopsFormula = Callable[[Arguments, Sequence[Any]], int]
"""(arguments, output tensors) -> FLOPs; reads shapes only, so fake and meta tensors serve too."""

BytesFormula = Callable[[Arguments, Sequence[Any]], int]
"""(arguments, output tensors) -> bytes read from and written to device memory."""


class OperatorClass(StrEnum):
    """Operators that share a cost law. `view` and `allocation` run no kernel."""

    MATMUL = "matmul"
    BATCHED_MATMUL = "batched_matmul"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    RNN = "rnn"
    FFT = "fft"
    NORMALISATION = "normalisation"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    SCAN = "scan"
    SORT = "sort"
    EMBEDDING = "embedding"
    INDEX = "index"
    LOSS = "loss"
    POOLING = "pooling"
    RESAMPLE = "resample"
    RANDOM = "random"
    COPY = "copy"
    OPTIMIZER = "optimizer"
    COMMUNICATION = "communication"
    ALLOCATION = "allocation"
    VIEW = "view"
    UNCOUNTED = "uncounted"

    @property
    def runs_kernel(self) -> bool:
        """Whether an operator of this class launches work on the device."""
        return self not in (OperatorClass.VIEW, OperatorClass.ALLOCATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """How one operator is counted.

    Attributes:
        name: Qualified base name without overload: `aten::mm`. In-place (`aten::add_`) and
            out-variants share the entry of their base.
        operator_class: Its cost law.
        flops: FLOPs of the mathematics; None is zero. Only contractions (matrix products,
            convolutions, attention, recurrent layers, transforms) have FLOPs: this is the
            convention of MFU (arXiv 2204.02311 app. B), a multiply-add is 2, a bias is free.
        recomputed_flops: FLOPs on top of `flops` that the kernel spends on computing something
            again (scores in a fused attention backward); part of hardware FLOPs only.
        moved: Bytes; None is the rule "every input read once, every output written once".
    """

    name: str
    operator_class: OperatorClass
    flops: FlopsFormula | None = None
    recomputed_flops: FlopsFormula | None = None
    moved: BytesFormula | None = None
