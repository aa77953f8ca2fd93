"""A traced run as it would be with an optimizer that keeps its state in 8 bits (pure).

By rewriting the stream, since the kernels of bitsandbytes cannot be traced: state of at least
`LEAST_ELEMENTS` elements takes one byte an element and one number in 32 bits per block of
`BLOCK_ELEMENTS`; smaller state is kept in 32 bits whatever the weights are. The step works in
place, one tensor after the other (bitsandbytes, `Optimizer2State` and
`optimizer_update_8bit_blockwise`).
"""

from __future__ import annotations

from dataclasses import replace

from bsprof.predict.stream import Stream
from bsprof.predict.terms.sharding import optimizer_temporaries
from bsprof.records import Category

STATE_BYTES = 4
"""Of an element of state that is not in 8 bits."""
LEAST_ELEMENTS = 4096
BLOCK_ELEMENTS = 256


def with_eight_bit_state(stream: Stream) -> Stream:
    """The stream with the optimizer's state in 8 bits, and without the step's temporaries."""
    temporaries = optimizer_temporaries(stream)
    traced_bytes = _element_bytes(stream)

    def size_of(storage: int, size: int, category: Category) -> int:
        if storage in temporaries:
            return 0
        if category is not Category.OPTIMIZER_STATE:
            return size
        elements = size // traced_bytes.get(storage, STATE_BYTES)
        if elements < LEAST_ELEMENTS:
            return elements * STATE_BYTES
        return elements + 4 * -(-elements // BLOCK_ELEMENTS)

    sizes = tuple(
        size_of(storage, size, category)
        for storage, (size, category) in enumerate(
            zip(stream.sizes, stream.categories, strict=True)
        )
    )
    return replace(stream, sizes=sizes)


def _element_bytes(stream: Stream) -> dict[int, int]:
    """Bytes of an element of each storage of the optimizer's state that an operator works on.

    State of 16-bit weights has their type in the traced run.
    """
    found: dict[int, int] = {}
    for operator in stream.operators:
        for operand in (*operator.inputs, *operator.outputs):
            block = operand.block
            if block >= 0 and stream.categories[block] is Category.OPTIMIZER_STATE:
                found[block] = operand.item_bytes
    return found
