"""BERT base as fine-tuned on SQuAD in 2021: eager attention under a padding mask, two logits.

Every sample is padded to the full length, whose attention is computed all the same.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.validate.models.eager_blocks import BertBlock, UnfusedLinear
from bsprof.workloads.workload import Workload

LAYERS, WIDTH, HEADS, HIDDEN = 12, 768, 12, 3072
VOCABULARY, POSITIONS, SEGMENTS = 30_522, 512, 2
DROPOUT = 0.1

Batch = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Tokens, which of them are real, and their segments, each (b, n); first and last token of the
answer, each (b,)."""


class BertForAnswers(nn.Module):
    """Tokens to logits (b, n, 2) that the answer starts, and ends, at each.

    Args:
        unfused: Whether linear layers add their bias apart (torch before 1.12).
    """

    def __init__(self, *, unfused: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.positions = nn.Embedding(POSITIONS, WIDTH)
        self.segments = nn.Embedding(SEGMENTS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.ModuleList(
            BertBlock(WIDTH, HEADS, HIDDEN, DROPOUT, unfused=unfused) for _ in range(LAYERS)
        )
        self.head = (UnfusedLinear if unfused else nn.Linear)(WIDTH, 2)

    def forward(self, tokens: Tensor, real: Tensor, segments: Tensor) -> Tensor:
        """Logits of all positions."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        x = self.tokens(tokens) + self.segments(segments) + self.positions(positions)
        x = self.dropout(self.norm(x))
        mask = (1.0 - real[:, None, None, :].to(x.dtype)) * -10000.0
        for block in self.blocks:
            x = block(x, mask)
        logits: Tensor = self.head(x)
        return logits


def batches(seq_len: int) -> Callable[[int, torch.device], Batch]:
    """A batch function of random questions."""
    generator = torch.Generator().manual_seed(0)

    def batch(micro_batch_size: int, device: torch.device) -> Batch:
        shape = (micro_batch_size, seq_len)
        tokens = torch.randint(VOCABULARY, shape, generator=generator)
        segments = torch.randint(SEGMENTS, shape, generator=generator)
        first, last = (
            torch.randint(seq_len, (micro_batch_size,), generator=generator) for _ in range(2)
        )
        parts = (tokens, torch.ones_like(tokens), segments, first, last)
        return tuple(part.to(device) for part in parts)  # type: ignore[return-value]

    return batch


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean of the cross entropies of both ends."""
    tokens, real, segments, first, last = batch
    ends = model(tokens, real, segments).split(1, dim=-1)
    start, end = (part.squeeze(-1).contiguous() for part in ends)
    return (F.cross_entropy(start, first) + F.cross_entropy(end, last)) / 2


def workload(seq_len: int = 384, unfused: bool = False) -> Workload:
    """The workload of fine-tuning.

    Args:
        seq_len: Tokens of a sample, padded.
        unfused: As in `BertForAnswers`.
    """
    return Workload(
        model=lambda: BertForAnswers(unfused=unfused),
        batch=batches(seq_len),
        loss=loss,
        tokens_per_sample=seq_len,
        uses_seq_len=True,
    )
