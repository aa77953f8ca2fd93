"""Multi-head attention with separate projections, over a sequence itself or over another."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class MultiHead(nn.Module):
    """Attention of (b, n, width) over itself, or over a memory (b, m, width).

    Query, key and value are three products, as in the published code of these families, not one.

    Args:
        width: Features of a token.
        heads: Attention heads.
        head_width: Features of a head; None is width / heads.
        causal: Whether a token sees only itself and those before it.
        scale: What scores are multiplied by; None is 1 / sqrt(head_width).
        dropout: Share of attention weights dropped in training.
        bias: Whether the projections add a bias.
        key_bias: Whether the key's does; None is as `bias`.
        kind: `sdpa` is PyTorch's fused attention, `eager` the formula spelled out.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kind: str,
        head_width: int | None = None,
        causal: bool = False,
        scale: float | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        key_bias: bool | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.head_width = width // heads if head_width is None else head_width
        self.causal = causal
        self.scale = 1 / math.sqrt(self.head_width) if scale is None else scale
        self.dropout = dropout
        self.kind = kind
        inner = heads * self.head_width
        self.query = nn.Linear(width, inner, bias=bias)
        self.key = nn.Linear(width, inner, bias=bias if key_bias is None else key_bias)
        self.value = nn.Linear(width, inner, bias=bias)
        self.out = nn.Linear(inner, width, bias=bias)

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Attend; (b, n, width) to (b, n, width).

        Args:
            x: Whose tokens ask.
            memory: Whose tokens are looked at; None is x.
            mask: Broadcast to (b, heads, n, m): True where a token may be seen, or numbers that
                are added to the scores. Not for causal attention.
        """
        source = x if memory is None else memory
        query = self._split(self.query(x))
        key = self._split(self.key(source))
        value = self._split(self.value(source))
        dropout = self.dropout if self.training else 0.0
        if self.kind == "sdpa":
            y = F.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=mask,
                dropout_p=dropout,
                is_causal=self.causal,
                scale=self.scale,
            )
        else:
            y = self._eager(query, key, value, mask, dropout)
        out: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return out

    def _split(self, x: Tensor) -> Tensor:
        """(b, n, heads x head_width) to (b, heads, n, head_width)."""
        return x.view(*x.shape[:2], self.heads, self.head_width).transpose(1, 2)

    def _eager(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float
    ) -> Tensor:
        """softmax(q k^T scale) v, with the whole matrix of weights in memory."""
        scores = query @ key.transpose(-2, -1) * self.scale
        if self.causal:
            n = scores.shape[-1]
            mask = torch.ones(n, n, dtype=torch.bool, device=scores.device).tril()
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, float("-inf"))
        elif mask is not None:
            scores = scores + mask
        return F.dropout(scores.softmax(dim=-1), dropout) @ value
