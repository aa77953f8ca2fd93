"""Multi-head self-attention, as the built-in transformers share it."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError

KINDS = ("sdpa", "eager")


def check_attention(kind: str | None) -> str:
    """The kind of attention to build; None is `sdpa`.

    Raises:
        UsageError: a kind that the models here do not have.
    """
    if kind is None:
        return "sdpa"
    if kind not in KINDS:
        raise UsageError(
            f"this model has no attention {kind!r}",
            next_step=f"use one of {', '.join(KINDS)}",
        )
    return kind


class SelfAttention(nn.Module):
    """Self-attention (b, n, width) to (b, n, width), one fused projection for query, key, value.

    Args:
        width: Features of a token; a multiple of `heads`.
        heads: Attention heads.
        causal: Whether a token sees only itself and those before it.
        dropout: Share of attention weights dropped in training.
        kind: `sdpa` is PyTorch's fused attention, `eager` the formula spelled out.
    """

    def __init__(
        self, width: int, heads: int, *, causal: bool, dropout: float, kind: str = "sdpa"
    ) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.dropout = dropout
        self.kind = kind
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Attend; (b, n, width) to (b, n, width)."""
        b, n, width = x.shape
        qkv = self.qkv(x).view(b, n, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        if self.kind == "sdpa":
            y = F.scaled_dot_product_attention(
                query, key, value, dropout_p=dropout, is_causal=self.causal
            )
        else:
            y = self._eager(query, key, value, dropout)
        out: Tensor = self.out(y.transpose(1, 2).reshape(b, n, width))
        return out

    def _eager(self, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        """softmax(q k^T / sqrt(d)) v, with the whole matrix of weights in memory."""
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        if self.causal:
            n = scores.shape[-1]
            future = torch.ones(n, n, dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(future, float("-inf"))
        return F.dropout(scores.softmax(dim=-1), dropout) @ value
