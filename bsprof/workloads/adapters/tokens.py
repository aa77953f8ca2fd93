"""How many tokens a batch has, read from the names that tokenised batches use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

IGNORED = -100
"""Labels that a loss leaves out: `ignore_index` of `torch.nn.functional.cross_entropy`."""


def loss_tokens(batch: Any) -> int:
    """Tokens that the loss averages over: labels (b, n) that are not ignored, else all tokens.

    A model that shifts its labels itself drops the first of each sample besides.
    """
    labels = _tensor(batch, "labels")
    if labels is not None and labels.dim() == 2 and not labels.is_floating_point():
        return int((labels != IGNORED).sum())
    return batch_tokens(batch)


def batch_tokens(batch: Any) -> int:
    """Tokens without padding: the sum of `attention_mask`, else all of `input_ids`; 0 for none."""
    tokens = _tensor(batch, "input_ids")
    if tokens is None:
        return 0
    mask = _tensor(batch, "attention_mask")
    # A mask of more dimensions says who attends to whom, not what is padding.
    return int(mask.sum()) if mask is not None and mask.shape == tokens.shape else tokens.numel()


def _tensor(batch: Any, name: str) -> Tensor | None:
    value = batch.get(name) if isinstance(batch, Mapping) else None
    return value if isinstance(value, Tensor) else None
