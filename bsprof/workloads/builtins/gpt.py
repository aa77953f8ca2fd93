"""`gpt-tiny`: the GPT-2 architecture, small.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners": pre-norm blocks,
learned positions, GELU by tanh, dropout 0.1, output projection tied to the token embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.attention import SelfAttention, check_attention
from bsprof.workloads.workload import Workload

LAYERS = 4
WIDTH = 256
HEADS = 4
VOCABULARY = 1000
SEQ_LEN = 128
DROPOUT = 0.1
INIT_STD = 0.02  # GPT-2's

Tokens = tuple[Tensor, Tensor]


class Block(nn.Module):
    """A pre-norm transformer block, (b, n, width) to (b, n, width)."""

    def __init__(self, attention: str) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = SelfAttention(WIDTH, HEADS, causal=True, dropout=DROPOUT, kind=attention)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        """Attention, then the two-layer network, each added to its input."""
        x = x + self.dropout(self.attention(self.norm1(x)))
        y: Tensor = x + self.dropout(self.mlp(self.norm2(x)))
        return y


class GPT(nn.Module):
    """Token indices (b, n) to logits (b, n, vocabulary)."""

    def __init__(self, seq_len: int, attention: str) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(seq_len, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.ModuleList(Block(attention) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.apply(init_weights)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def init_weights(module: nn.Module) -> None:
    """Normal weights of GPT-2's (and BERT's) width, biases zero."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INIT_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def token_batches(
    vocabulary: int, seq_len: int, seed: int
) -> Callable[[int, torch.device], Tokens]:
    """A batch function: tokens (b, seq_len) and the token after each, (b, seq_len)."""
    generator = torch.Generator().manual_seed(seed)

    def batch(micro_batch_size: int, device: torch.device) -> Tokens:
        text = torch.randint(vocabulary, (micro_batch_size, seq_len + 1), generator=generator)
        return text[:, :-1].contiguous().to(device), text[:, 1:].contiguous().to(device)

    return batch


def loss(model: nn.Module, batch: Tokens) -> Tensor:
    """Mean cross entropy over all tokens."""
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def workload(spec: WorkloadSpec) -> Workload:
    """The workload of `--model gpt-tiny`."""
    seq_len = SEQ_LEN if spec.seq_len is None else spec.seq_len
    attention = check_attention(spec.attention)
    return Workload(
        model=lambda: GPT(seq_len, attention),
        batch=token_batches(VOCABULARY, seq_len, spec.seed),
        loss=loss,
        count=lambda batch: batch[1].numel(),
        tokens_per_sample=seq_len,
        uses_seq_len=True,
        uses_attention=True,
        checkpoint_blocks=lambda model: cast(Sequence[nn.Module], cast(GPT, model).blocks),
    )
