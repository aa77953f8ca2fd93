"""A traced run as it would be with an optimizer that keeps its state in 8 bits (pure).

By rewriting the stream, since the kernels of bitsandbytes cannot be traced: state of at least
`LEAST_ELEMENTS` elements takes one byte an element and one number in 32 bits per block of
`BLOCK_ELEMENTS`, and the step works in place, one tensor after the other (bitsandbytes,
`Optimizer2State` and `optimizer_update_8bit_blockwise`).
"""

from __future__ import annotations

from dataclasses import replace

from bsprof.predict.stream import Stream
from bsprof.predict.terms.sharding import optimizer_temporaries
from bsprof.records import Category

STATE_BYTES = 4
"""Of an element in the traced run."""
LEAST_ELEMENTS = 4096
BLOCK_ELEMENTS = 256


def with_eight_bit_state(stream: Stream) -> Stream:
    """The stream with the optimizer's state in 8 bits, and without the step's temporaries."""
    temporaries = optimizer_temporaries(stream)

    def size_of(storage: int, size: int, category: Category) -> int:
        if storage in temporaries:
            return 0
        elements = size // STATE_BYTES
        if category is not Category.OPTIMIZER_STATE or elements < LEAST_ELEMENTS:
            return size
        return elements + 4 * -(-elements // BLOCK_ELEMENTS)

    sizes = tuple(
        size_of(storage, size, category)
        for storage, (size, category) in enumerate(
            zip(stream.sizes, stream.categories, strict=True)
        )
    )
    return replace(stream, sizes=sizes)
