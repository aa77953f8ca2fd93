"""`encoder-tiny`: the BERT architecture as a masked language model, small.

Devlin et al. 2019, arXiv 1810.04805: post-norm blocks, learned positions, segment embedding,
exact GELU, dropout 0.1, a transform before the output projection, which is tied to the embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.attention import SelfAttention, check_attention
from bsprof.workloads.builtins.gpt import Tokens, init_weights
from bsprof.workloads.workload import Workload

LAYERS = 4
WIDTH = 256
HEADS = 4
VOCABULARY = 1000
SEGMENTS = 2
SEQ_LEN = 128
DROPOUT = 0.1
MASKED_SHARE = 0.15  # BERT's
MASK_TOKEN = 0
IGNORED = -100  # cross entropy's own default


class Block(nn.Module):
    """A post-norm transformer block, (b, n, width) to (b, n, width)."""

    def __init__(self, attention: str) -> None:
        super().__init__()
        self.attention = SelfAttention(WIDTH, HEADS, causal=False, dropout=DROPOUT, kind=attention)
        self.norm1 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.norm2 = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        """Attention, then the two-layer network, each added to its input and normalised."""
        x = self.norm1(x + self.dropout(self.attention(x)))
        y: Tensor = self.norm2(x + self.dropout(self.mlp(x)))
        return y


class Encoder(nn.Module):
    """Token indices (b, n) to logits (b, n, vocabulary)."""

    def __init__(self, seq_len: int, attention: str) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(seq_len, WIDTH)
        self.segments = nn.Embedding(SEGMENTS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.ModuleList(Block(attention) for _ in range(LAYERS))
        self.transform = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.apply(init_weights)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the token at every position; all tokens are of the first segment."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        segments = torch.zeros_like(tokens)
        x = self.tokens(tokens) + self.positions(positions) + self.segments(segments)
        x = self.dropout(self.norm(x))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.transform(x))
        return logits


def masked_batches(
    vocabulary: int, seq_len: int, seed: int
) -> Callable[[int, torch.device], Tokens]:
    """A batch function: tokens (b, seq_len), some masked, and the labels of those masked."""
    generator = torch.Generator().manual_seed(seed)

    def batch(micro_batch_size: int, device: torch.device) -> Tokens:
        shape = (micro_batch_size, seq_len)
        text = torch.randint(1, vocabulary, shape, generator=generator)
        masked = torch.rand(shape, generator=generator) < MASKED_SHARE
        masked[:, 0] = True  # a loss over no token at all would not be a number
        tokens = text.masked_fill(masked, MASK_TOKEN)
        return tokens.to(device), text.masked_fill(~masked, IGNORED).to(device)

    return batch


def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Mean cross entropy over the masked tokens; what follows the labels goes to the model."""
    tokens, labels, *mask = batch
    return F.cross_entropy(
        model(tokens, *mask).flatten(0, 1), labels.flatten(), ignore_index=IGNORED
    )


def workload(spec: WorkloadSpec) -> Workload:
    """The workload of `--model encoder-tiny`."""
    seq_len = SEQ_LEN if spec.seq_len is None else spec.seq_len
    attention = check_attention(spec.attention)
    return Workload(
        model=lambda: Encoder(seq_len, attention),
        batch=masked_batches(VOCABULARY, seq_len, spec.seed),
        loss=loss,
        count=lambda batch: int((batch[1] != IGNORED).sum()),
        tokens_per_sample=seq_len,
        uses_seq_len=True,
        uses_attention=True,
        checkpoint_blocks=lambda model: cast(Sequence[nn.Module], cast(Encoder, model).blocks),
    )
