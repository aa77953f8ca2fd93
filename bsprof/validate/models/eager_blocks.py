"""Transformer blocks, operator by operator as transformers 4.26 to 4.40 ran them without fusion.

Kernels are what matters here: the matrix of attention weights is written to memory at every step,
products of four dimensions copy their operands, and GELU's approximation is eight kernels. All
take and return (b, n, width).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class UnfusedLinear(nn.Linear):
    """A linear layer as torch before 1.12 ran it on three dimensions: the bias is added apart."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name is nn.Linear's
        """(..., in) to (..., out)."""
        out = input @ self.weight.t()
        return out if self.bias is None else out.add_(self.bias)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(b, n, width) to a view of (b, heads, n, width / heads)."""
    b, n, width = x.shape
    return x.view(b, n, heads, width // heads).permute(0, 2, 1, 3)


def merged_heads(x: Tensor) -> Tensor:
    """(b, heads, n, head) to a copy of (b, n, heads x head)."""
    return x.permute(0, 2, 1, 3).contiguous().flatten(2)


def gelu_new(x: Tensor) -> Tensor:
    """GELU by tanh, one operator after another."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


class BertBlock(nn.Module):
    """BERT's layer: post-norm, three projections, exact GELU.

    Args:
        width, heads, hidden: Features of a token, heads, features between the last two layers.
        dropout: Everywhere that something is dropped.
        unfused: Whether linear layers add their bias apart.
    """

    def __init__(
        self, width: int, heads: int, hidden: int, dropout: float = 0.1, *, unfused: bool = False
    ) -> None:
        super().__init__()
        linear = UnfusedLinear if unfused else nn.Linear
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.query, self.key, self.value = (linear(width, width) for _ in range(3))
        self.out = linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.up, self.down = linear(width, hidden), linear(hidden, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """With numbers (b, 1, 1, n) that are added to the scores, if any."""
        query, key, value = (
            split_heads(layer(x), self.heads) for layer in (self.query, self.key, self.value)
        )
        scores = torch.matmul(query, key.transpose(-1, -2))
        scores = scores / math.sqrt(query.shape[-1])
        if mask is not None:
            scores = scores + mask
        weights = self.dropout(F.softmax(scores, dim=-1))
        attended = merged_heads(torch.matmul(weights, value))
        x = self.attention_norm(self.dropout(self.out(attended)) + x)
        hidden = F.gelu(self.up(x))
        y: Tensor = self.norm(self.dropout(self.down(hidden)) + x)
        return y


class Gpt2Block(nn.Module):
    """GPT-2's block: pre-norm, one projection for query, key and value, scores kept by a mask.

    Args:
        width, heads: Features of a token, heads.
        positions: Rows of the causal mask that the block keeps.
        dropout: Everywhere that something is dropped.
    """

    def __init__(self, width: int, heads: int, positions: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        seen = torch.ones(positions, positions, dtype=torch.bool).tril()
        self.register_buffer("seen", seen[None, None], persistent=False)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Attention, then the two-layer network, each added to its input."""
        n, width = x.shape[1:]
        query, key, value = (
            split_heads(part, self.heads) for part in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        scores = torch.matmul(query, key.transpose(-1, -2))
        root = math.sqrt(query.shape[-1])
        scores = scores / torch.full([], root, dtype=scores.dtype, device=scores.device)
        least = torch.full(
            [], torch.finfo(scores.dtype).min, dtype=scores.dtype, device=scores.device
        )
        seen = self.get_buffer("seen")[:, :, :n, :n]
        weights = self.dropout(F.softmax(torch.where(seen, scores, least), dim=-1))
        x = self.dropout(self.out(merged_heads(torch.matmul(weights, value)))) + x
        y: Tensor = x + self.dropout(self.down(gelu_new(self.up(self.norm2(x)))))
        return y


class OptBlock(nn.Module):
    """OPT's block: pre-norm, three projections whose heads are copied apart, ReLU.

    Args:
        width, heads: Features of a token, heads.
        dropout: Of what each half adds; attention weights are not dropped.
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """With numbers (b, 1, n, n) that are added to the scores."""
        b, n, width = x.shape
        normed = self.norm1(x)
        query = self.query(normed) * (width // self.heads) ** -0.5
        key, value = self._heads(self.key(normed)), self._heads(self.value(normed))
        scores = torch.bmm(self._heads(query), key.transpose(1, 2)).view(b, self.heads, n, n) + mask
        least = torch.full([], torch.finfo(x.dtype).min, dtype=x.dtype, device=x.device)
        scores = torch.max(scores, least).view(b * self.heads, n, n)
        attended = torch.bmm(F.softmax(scores, dim=-1), value).view(b, self.heads, n, -1)
        x = x + self.dropout(self.out(attended.transpose(1, 2).reshape(b, n, width)))
        flat = x.reshape(-1, width)
        hidden = F.relu(self.up(self.norm2(flat)))
        y: Tensor = (flat + self.dropout(self.down(hidden))).view(b, n, width)
        return y

    def _heads(self, x: Tensor) -> Tensor:
        """(b, n, width) to a copy of (b x heads, n, head)."""
        return split_heads(x, self.heads).contiguous().flatten(0, 1)
