"""GPT-2, GPT-3 and OPT as transformers built and ran them without fused attention.

Random tokens, no padding mask given. In training the loss is taken of logits that are shifted by a
copy, as their own code does; in inference there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.validate.models.eager_blocks import Gpt2Block, OptBlock
from bsprof.workloads.builtins.gpt import Tokens, token_batches
from bsprof.workloads.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What tells one decoder from another.

    Attributes:
        opt: Whether it is of OPT's kind; else of GPT-2's.
        layers, width, heads: Blocks, features of a token, attention heads.
        vocabulary, positions: Rows of the two tables.
    """

    opt: bool
    layers: int
    width: int
    heads: int
    vocabulary: int
    positions: int


SHAPES = {
    "gpt2-large": Shape(
        opt=False, layers=36, width=1280, heads=20, vocabulary=50_257, positions=1024
    ),
    "gpt3-xl": Shape(opt=False, layers=24, width=3072, heads=24, vocabulary=50_257, positions=2048),
    "opt-1.3b": Shape(opt=True, layers=24, width=2048, heads=32, vocabulary=50_272, positions=2048),
}
OPT_FIRST_POSITION = 2
"""Rows of OPT's table of positions that no token has."""


class Decoder(nn.Module):
    """Token indices (b, n) to logits (b, n, vocabulary), the output tied to the embedding."""

    def __init__(self, shape: Shape, dropout: float = 0.1) -> None:
        super().__init__()
        width = shape.width
        self.opt = shape.opt
        self.tokens = nn.Embedding(shape.vocabulary, width)
        first = OPT_FIRST_POSITION if shape.opt else 0
        self.positions = nn.Embedding(shape.positions + first, width)
        self.dropout = nn.Dropout(0.0 if shape.opt else dropout)
        self.blocks = nn.ModuleList(
            OptBlock(width, shape.heads, dropout)
            if shape.opt
            else Gpt2Block(width, shape.heads, shape.positions, dropout)
            for _ in range(shape.layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, shape.vocabulary, bias=False, device="meta")
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        b, n = tokens.shape
        device = tokens.device
        first = OPT_FIRST_POSITION if self.opt else 0
        x = self.tokens(tokens)
        positions = self.positions(torch.arange(first, first + n, device=device)[None])
        x = self.dropout(x + positions)
        mask = causal_numbers(b, n, x) if self.opt else None
        for block in self.blocks:
            x = block(x) if mask is None else block(x, mask)
        logits: Tensor = self.head(self.norm(x))
        return logits


def causal_numbers(b: int, n: int, like: Tensor) -> Tensor:
    """(b, 1, n, n): 0 where a token may be seen, the least number where not."""
    least = torch.finfo(like.dtype).min
    full = torch.full((n, n), least, dtype=like.dtype, device=like.device)
    return full.triu(1)[None, None].expand(b, 1, n, n).contiguous()


def workload(name: str = "gpt2-large", seq_len: int = 1024) -> Workload:
    """The decoder's workload.

    Args:
        name: Of `SHAPES`.
        seq_len: Tokens of a sample.
    """
    shape = SHAPES[name]

    def loss(model: nn.Module, batch: Tokens) -> Tensor:
        tokens, _ = batch
        logits: Tensor = model(tokens)
        if not model.training:
            return logits[0, 0, 0]
        shifted = logits[..., :-1, :].contiguous()
        labels = tokens[..., 1:].contiguous()
        return F.cross_entropy(shifted.view(-1, shape.vocabulary), labels.view(-1))

    return Workload(
        model=lambda: Decoder(shape),
        batch=token_batches(shape.vocabulary, seq_len, 0),
        loss=loss,
        tokens_per_sample=seq_len,
        uses_seq_len=True,
    )
