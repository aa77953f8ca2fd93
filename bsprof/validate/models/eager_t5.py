"""T5's block, operator by operator as transformers 4.26 to 4.40 ran it without fusion.

All take and return (b, n, width).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.validate.models.eager_blocks import merged_heads, split_heads

HALF_MARGIN = 1000
"""In fp16, sums are clamped so far below the largest number once one of them is infinite."""


class Norm(nn.Module):
    """Division by the root mean square, computed in fp32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Over the last dimension."""
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + 1e-6)
        if self.weight.dtype in (torch.float16, torch.bfloat16):
            x = x.to(self.weight.dtype)
        return self.weight * x


class Attention(nn.Module):
    """Attention without biases or scale, added to its input; softmax in fp32.

    Args:
        width, heads, head: Features of a token, heads, features of a head.
        dropout: Share of attention weights, and of what is added, that is dropped.
    """

    def __init__(self, width: int, heads: int, head: int, dropout: float = 0.1) -> None:
        super().__init__()
        inner = heads * head
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.norm = Norm(width)
        self.query, self.key, self.value = (nn.Linear(width, inner, bias=False) for _ in range(3))
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, bias: Tensor, memory: Tensor | None = None) -> Tensor:
        """Over x itself or a memory (b, m, width), with a bias (1 or b, heads, n, m)."""
        normed = self.norm(x)
        source = normed if memory is None else memory
        query = split_heads(self.query(normed), self.heads)
        key, value = (split_heads(layer(source), self.heads) for layer in (self.key, self.value))
        scores = torch.matmul(query, key.transpose(3, 2))
        scores += bias
        weights = self.dropout(F.softmax(scores.float(), dim=-1).type_as(scores))
        attended: Tensor = self.out(merged_heads(torch.matmul(weights, value)))
        return clamped(x + self.dropout(attended))


class TwoLayers(nn.Module):
    """Two linear layers with ReLU between, no biases."""

    def __init__(self, width: int, hidden: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to (..., width)."""
        y: Tensor = self.down(self.dropout(F.relu(self.up(x))))
        return y


class FeedForward(nn.Module):
    """A norm and a network, added to their input."""

    def __init__(self, width: int, network: nn.Module, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm, self.network, self.dropout = Norm(width), network, nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(b, n, width) to (b, n, width)."""
        return clamped(x + self.dropout(self.network(self.norm(x))))


def clamped(x: Tensor) -> Tensor:
    """In fp16 the sum kept from infinity; otherwise itself."""
    if x.dtype != torch.float16:
        return x
    most = torch.finfo(x.dtype).max
    limit = torch.where(torch.isinf(x).any(), most - HALF_MARGIN, most)
    return torch.clamp(x, min=-limit, max=limit)
