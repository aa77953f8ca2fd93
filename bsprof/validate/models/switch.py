"""A Switch Transformer as transformers ran it in 2023: T5's stacks, every second layer of experts.

Each token goes to one expert, and each expert takes so many tokens of a sample at most; those
beyond pass it by. Which tokens an expert takes depends on the data; here it takes evenly spread
ones, as many as its share and its capacity allow. Experts run one after another.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.validate.models.eager_t5 import Attention, FeedForward, Norm, TwoLayers
from bsprof.workloads.builtins.gpt import Tokens, token_batches
from bsprof.workloads.workload import Workload

BUCKETS = 32
"""Distances that the position biases tell apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What defines the model; the defaults are T5 3B's.

    Attributes:
        layers: Of each of both stacks.
        width, heads, head, hidden: Features of a token, heads, features of a head, features
            between the layers of a network.
        vocabulary: Rows of the table of tokens.
        experts: Networks of a sparse layer.
        capacity: Tokens of a sample that an expert takes.
        dropout: Everywhere that something is dropped.
    """

    layers: int = 24
    width: int = 1024
    heads: int = 32
    head: int = 128
    hidden: int = 16_384
    vocabulary: int = 32_128
    experts: int = 4
    capacity: int = 64
    dropout: float = 0.1


class Experts(nn.Module):
    """A router and its experts; (b, n, width) to (b, n, width)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.capacity = shape.capacity
        self.router = nn.Linear(shape.width, shape.experts, bias=False)
        self.experts = nn.ModuleList(
            TwoLayers(shape.width, shape.hidden, shape.dropout) for _ in range(shape.experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        """What the experts make of their tokens, the others' as they are, by their probability."""
        b, n, _ = x.shape
        shares = F.softmax(self.router(x), dim=-1)
        chosen = F.one_hot(torch.argmax(shares, dim=-1), len(self.experts))
        routed = chosen * (torch.cumsum(chosen, dim=-2) <= self.capacity)
        probability = shares.amax(dim=-1, keepdim=True)
        found = x.clone()
        taken = min(self.capacity, n // len(self.experts))
        for number, expert in enumerate(self.experts):
            routed[:, :, number].bool()  # the mask that the tokens are picked by
            positions = torch.arange(taken, device=x.device) * len(self.experts) + number
            rows = (torch.arange(b, device=x.device)[:, None] * n + positions).flatten()
            picked = expert(x.view(b * n, -1)[rows])
            found.view(b * n, -1)[rows] = picked
        return probability * found


class Block(nn.Module):
    """Attention, in the decoder attention over the encoder's output, and a network."""

    def __init__(self, shape: Shape, *, sparse: bool, decodes: bool) -> None:
        super().__init__()
        attention = (shape.width, shape.heads, shape.head, shape.dropout)
        self.attention = Attention(*attention)
        self.cross = Attention(*attention) if decodes else None
        network = Experts(shape) if sparse else TwoLayers(shape.width, shape.hidden, shape.dropout)
        self.feed_forward = FeedForward(shape.width, network, shape.dropout)

    def forward(
        self, x: Tensor, bias: Tensor, memory: Tensor | None, memory_bias: Tensor | None
    ) -> Tensor:
        """(b, n, width) to (b, n, width), with the biases of both attentions."""
        x = self.attention(x, bias)
        if self.cross is not None:
            x = self.cross(x, memory_bias, memory)
        y: Tensor = self.feed_forward(x)
        return y


class Stack(nn.Module):
    """Blocks that share the position biases of the first."""

    def __init__(self, shape: Shape, *, decodes: bool) -> None:
        super().__init__()
        self.decodes, self.heads = decodes, shape.heads
        self.biases = nn.Embedding(BUCKETS, shape.heads)
        self.blocks = nn.ModuleList(
            Block(shape, sparse=layer % 2 == 1, decodes=decodes) for layer in range(shape.layers)
        )
        self.norm, self.dropout = Norm(shape.width), nn.Dropout(shape.dropout)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        """(b, n, width) to (b, n, width), over a memory (b, m, width) in the decoder."""
        b, n, _ = x.shape
        places = torch.arange(n, device=x.device)
        distances = (places[None] - places[:, None]).abs().clamp(max=BUCKETS - 1)
        bias = self.biases(distances).permute(2, 0, 1)[None]
        bias = bias + torch.zeros(b, 1, n, n, dtype=x.dtype, device=x.device)
        memory_bias = None
        if memory is not None:
            m = memory.shape[1]
            memory_bias = torch.zeros(1, self.heads, n, m, dtype=x.dtype, device=x.device)
            memory_bias = memory_bias + torch.zeros(b, 1, 1, m, dtype=x.dtype, device=x.device)
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x, bias, memory, memory_bias)
        y: Tensor = self.dropout(self.norm(x))
        return y


class Switch(nn.Module):
    """Tokens (b, n) to logits (b, n, vocabulary) of as many tokens; one table for all three."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.scale = shape.width**-0.5
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.encoder = Stack(shape, decodes=False)
        self.decoder = Stack(shape, decodes=True)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False, device="meta")
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Logits of the targets, of which the decoder sees those before."""
        memory = self.encoder(self.tokens(tokens))
        y = self.decoder(self.tokens(targets), memory)
        logits: Tensor = self.head(y * self.scale)
        return logits


def workload(seq_len: int = 512, experts: int = 4, capacity: int = 64) -> Workload:
    """The workload of a Switch Transformer on T5 3B's dimensions.

    Args:
        seq_len: Tokens that are read, and as many that are written.
        experts, capacity: As in `Shape`.
    """
    shape = Shape(experts=experts, capacity=capacity)

    def loss(model: nn.Module, batch: Tokens) -> Tensor:
        tokens, targets = batch
        logits: Tensor = model(tokens, targets)
        if not model.training:
            return logits[0, 0, 0]
        return F.cross_entropy(logits.view(-1, shape.vocabulary), targets.view(-1))

    return Workload(
        model=lambda: Switch(shape),
        batch=token_batches(shape.vocabulary, seq_len, 0),
        loss=loss,
        tokens_per_sample=seq_len,
        uses_seq_len=True,
    )
