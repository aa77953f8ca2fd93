"""Packages that do something else when they meet fake tensors, kept from it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def as_if_real() -> Iterator[None]:
    """While inside, transformers builds the attention masks of a real run.

    It asks the positions whether samples are packed into one row, which a fake tensor cannot
    answer, and then masks as if they were. Batches here are not packed.
    """
    masks: Any = sys.modules.get("transformers.masking_utils")
    original = getattr(masks, "find_packed_sequence_indices", None)
    if original is None:
        yield
        return

    def unpacked(*arguments: Any, **named: Any) -> None:
        original(*arguments, **named)  # its operators run in any case

    masks.find_packed_sequence_indices = unpacked
    try:
        yield
    finally:
        masks.find_packed_sequence_indices = original
