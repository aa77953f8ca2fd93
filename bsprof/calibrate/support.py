"""Which precisions a device multiplies in (pure)."""

from __future__ import annotations

from bsprof.predict.terms.convolution import FIRST_TENSOR_CORES, FIRST_TF32
from bsprof.predict.whatif import FIRST_BF16

Capability = tuple[int, int]


def has_precision(precision: str, capability: Capability | None) -> bool:
    """Whether it is worth timing: not where a type is emulated, or runs as another one.

    Args:
        precision: Of a benchmark.
        capability: Compute capability; None for a processor.
    """
    if capability is None:
        return precision in ("fp32", "bf16")
    first = {"fp32": (0, 0), "tf32": FIRST_TF32, "bf16": FIRST_BF16, "fp16": FIRST_TENSOR_CORES}
    return capability >= first[precision]
