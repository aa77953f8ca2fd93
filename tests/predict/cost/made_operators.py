"""Hand-made operators, and their works."""

from __future__ import annotations

from bsprof.predict.cost import works_of
from bsprof.predict.cost.multipliers import Multipliers
from bsprof.predict.stream import Operand, Operator
from bsprof.records import Phase, Precision

AMPERE, VOLTA = (8, 0), (7, 0)


def tensor(*shape, dtype="float32", block=-1, channels_last=False):
    return Operand(shape=shape, dtype=dtype, block=block, channels_last=channels_last)


def half(*shape, **fields):
    return tensor(*shape, dtype="float16", **fields)


def operator(name, inputs, outputs=(), *, position=0, backward=False, module=0, **attributes):
    return Operator(
        position=position,
        name=f"aten.{name}",
        module=module,
        phase=Phase.FORWARD_BACKWARD,
        backward=backward,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        attributes=attributes,
    )


def works(*operators, capability=AMPERE, precision=Precision.FP32):
    multipliers = Multipliers(compute_capability=capability, precision=precision)
    return works_of(operators, multipliers)
