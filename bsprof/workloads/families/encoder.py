"""BERT and RoBERTa as masked language models.

Devlin et al. 2019, arXiv 1810.04805; Liu et al. 2019, arXiv 1907.11692: post-norm blocks, learned
positions, exact GELU, dropout on embeddings, attention weights and both sub-layers, a transform
before the output projection, which is tied to the token embedding. Logits are computed at every
position, as Hugging Face's models do, and scored at the masked ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.attention import check_attention
from bsprof.workloads.builtins.encoder import IGNORED, loss, masked_batches
from bsprof.workloads.builtins.gpt import init_weights
from bsprof.workloads.catalogue.entries import Entry
from bsprof.workloads.families.multihead import MultiHead
from bsprof.workloads.families.settings import check_heads, check_length, read_settings
from bsprof.workloads.workload import Workload

Batch = tuple[Tensor, ...]
"""Tokens (b, n), labels (b, n), and with a padding mask which tokens are real (b, n)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSettings:
    """What defines an encoder.

    Attributes:
        layers: Blocks.
        width: Features of a token.
        heads: Attention heads.
        feed_forward: Features between a block's two linear layers.
        vocabulary: Tokens that exist.
        positions: Rows of the table of positions.
        first_position: The row of the first token (RoBERTa keeps two rows for padding).
        segments: Rows of the table of token types.
        norm_epsilon: Added to the variance by layer normalisation.
        dropout: Share dropped everywhere that something is.
        padding_mask: Whether batches carry a padding mask (of full-length samples), which keeps
            attention off the kernels that take no mask.
        seq_len: Tokens of a sample.
    """

    layers: int
    width: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    first_position: int
    segments: int
    norm_epsilon: float
    dropout: float
    padding_mask: bool
    seq_len: int


class Block(nn.Module):
    """A post-norm transformer block, (b, n, width) to (b, n, width)."""

    def __init__(self, settings: EncoderSettings, attention: str) -> None:
        super().__init__()
        width, epsilon = settings.width, settings.norm_epsilon
        self.attention = MultiHead(width, settings.heads, dropout=settings.dropout, kind=attention)
        self.norm1 = nn.LayerNorm(width, eps=epsilon)
        self.mlp = nn.Sequential(
            nn.Linear(width, settings.feed_forward),
            nn.GELU(),
            nn.Linear(settings.feed_forward, width),
        )
        self.norm2 = nn.LayerNorm(width, eps=epsilon)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Attention, then the two-layer network, each added to its input and normalised."""
        x = self.norm1(x + self.dropout(self.attention(x, mask=mask)))
        y: Tensor = self.norm2(x + self.dropout(self.mlp(x)))
        return y


class Encoder(nn.Module):
    """Token indices (b, n) to logits (b, n, vocabulary)."""

    def __init__(self, settings: EncoderSettings, attention: str) -> None:
        super().__init__()
        width, epsilon = settings.width, settings.norm_epsilon
        self.first_position = settings.first_position
        self.tokens = nn.Embedding(settings.vocabulary, width)
        self.positions = nn.Embedding(settings.positions, width)
        self.segments = nn.Embedding(settings.segments, width)
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.dropout = nn.Dropout(settings.dropout)
        self.blocks = nn.ModuleList(Block(settings, attention) for _ in range(settings.layers))
        self.transform = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=epsilon)
        )
        self.head = nn.Linear(width, settings.vocabulary)
        self.apply(init_weights)
        self.head.weight = self.tokens.weight

    def forward(
        self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """Logits of the token at every position.

        Args:
            tokens: Indices (b, n).
            mask: True (b, n) where a token is no padding; None where all are real.
            segments: Token types (b, n); None where all are of the first.
        """
        n = tokens.shape[1]
        positions = torch.arange(self.first_position, self.first_position + n, device=tokens.device)
        segments = torch.zeros_like(tokens) if segments is None else segments
        x = self.tokens(tokens) + self.positions(positions) + self.segments(segments)
        x = self.dropout(self.norm(x))
        seen = None if mask is None else mask[:, None, None, :]
        for block in self.blocks:
            x = block(x, seen)
        logits: Tensor = self.head(self.transform(x))
        return logits


def batches(settings: EncoderSettings, seed: int) -> Callable[[int, torch.device], Batch]:
    """A batch function: masked tokens, their labels, and a padding mask if the settings ask."""
    masked = masked_batches(settings.vocabulary, settings.seq_len, seed)
    if not settings.padding_mask:
        return masked

    def batch(micro_batch_size: int, device: torch.device) -> Batch:
        tokens, labels = masked(micro_batch_size, device)
        return tokens, labels, torch.ones_like(tokens, dtype=torch.bool)

    return batch


def workload(spec: WorkloadSpec, entry: Entry) -> Workload:
    """The workload of a BERT or RoBERTa entry.

    Raises:
        UsageError: settings that no model can be built with, or a sequence longer than the table
            of positions.
    """
    settings = read_settings(EncoderSettings, spec, entry)
    check_heads(entry, settings.width, settings.heads)
    usable = settings.positions - settings.first_position
    check_length(entry, settings.seq_len, usable, settings.positions)
    attention = check_attention(spec.attention)
    return Workload(
        model=lambda: Encoder(settings, attention),
        batch=batches(settings, spec.seed),
        loss=loss,
        count=lambda batch: int((batch[1] != IGNORED).sum()),
        tokens_per_sample=settings.seq_len,
        uses_seq_len=True,
        uses_attention=True,
        checkpoint_blocks=lambda model: cast(Sequence[nn.Module], cast(Encoder, model).blocks),
    )
