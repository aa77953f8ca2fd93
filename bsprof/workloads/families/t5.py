"""T5: an encoder and a decoder, text to text.

Raffel et al. 2020, arXiv 1910.10683: pre-norm blocks that normalise by the root mean square
without a mean or a bias, no bias anywhere, unscaled attention, and relative position biases that
all blocks of a stack share. The first version has a ReLU network and one table for embeddings
and output; version 1.1 (Shazeer 2020, arXiv 2002.05202), which Flan-T5 trains further, has a gated
GELU network and an output table of its own. A sample is a text with spans cut out and the target
that fills them in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.attention import check_attention
from bsprof.workloads.catalogue.entries import Entry
from bsprof.workloads.families.multihead import MultiHead
from bsprof.workloads.families.settings import read_settings
from bsprof.workloads.workload import Workload

START_TOKEN = 0  # T5's padding token begins every target

Batch = tuple[Tensor, Tensor, Tensor]
"""Tokens (b, seq_len), target tokens one to the right (b, target_len), the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class T5Settings:
    """What defines a T5.

    Attributes:
        depths: Blocks of the encoder and of the decoder.
        width: Features of a token.
        heads: Attention heads.
        head_width: Features of a head.
        feed_forward: Features between a block's linear layers.
        gated: Whether the network is a gated GELU and not a ReLU.
        tied: Whether the output shares the table of embeddings.
        vocabulary: Tokens that exist.
        buckets: Classes of relative positions.
        max_distance: Distance from which on all are of one class.
        norm_epsilon: Added to the mean square by normalisation.
        dropout: Share dropped everywhere that something is.
        seq_len: Tokens that the encoder reads.
        target_len: Tokens that the decoder writes.
    """

    depths: tuple[int, ...]
    width: int
    heads: int
    head_width: int
    feed_forward: int
    gated: bool
    tied: bool
    vocabulary: int
    buckets: int
    max_distance: int
    norm_epsilon: float
    dropout: float
    seq_len: int
    target_len: int


def relative_buckets(
    queries: int,
    keys: int,
    *,
    buckets: int,
    max_distance: int,
    both_sides: bool,
    device: torch.device | None = None,
) -> Tensor:
    """The class of every (query, key) pair's distance, (queries, keys) of 0 to buckets - 1.

    One half of the classes is for single distances, the other for ranges that grow by a constant
    factor up to `max_distance` (arXiv 1910.10683, section 2.1). Seen from both sides, keys after
    the query have the upper half of all classes; else they are taken for distance 0.
    """
    distance = (
        torch.arange(queries, device=device)[:, None] - torch.arange(keys, device=device)[None, :]
    )
    if both_sides:
        buckets //= 2
        offset = (distance < 0) * buckets
        distance = distance.abs()
    else:
        offset = torch.zeros_like(distance)
        distance = distance.clamp(min=0)
    single = buckets // 2
    # Divided and multiplied in the published order: a rounding decides at exact powers.
    steps = torch.log(distance.clamp(min=1).float() / single)
    steps = steps / math.log(max_distance / single) * (buckets - single)
    far = (single + steps.long()).clamp(max=buckets - 1)
    return offset + torch.where(distance < single, distance, far)


class RelativeBias(nn.Module):
    """A learned number for each head and class of distance, added to attention scores."""

    def __init__(self, settings: T5Settings, *, causal: bool) -> None:
        super().__init__()
        self.buckets = settings.buckets
        self.max_distance = settings.max_distance
        self.causal = causal
        self.table = nn.Embedding(settings.buckets, settings.heads)

    def forward(self, x: Tensor) -> Tensor:
        """(1, heads, n, n) for tokens x (b, n, width); minus infinity for a causal future."""
        n = x.shape[1]
        classes = relative_buckets(
            n,
            n,
            buckets=self.buckets,
            max_distance=self.max_distance,
            both_sides=not self.causal,
            device=x.device,
        )
        bias: Tensor = self.table(classes).permute(2, 0, 1).unsqueeze(0)
        if self.causal:
            future = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
            bias = bias.masked_fill(future, float("-inf"))
        return bias


class FeedForward(nn.Module):
    """The two-layer network of a block, its first layer a ReLU or a gated GELU."""

    def __init__(self, settings: T5Settings) -> None:
        super().__init__()
        width, inner = settings.width, settings.feed_forward
        self.gate = nn.Linear(width, inner, bias=False) if settings.gated else None
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(b, n, width) to (b, n, width)."""
        hidden = self.up(x)
        if self.gate is None:
            hidden = F.relu(hidden)
        else:
            hidden = F.gelu(self.gate(x), approximate="tanh") * hidden
        y: Tensor = self.down(self.dropout(hidden))
        return y


class Block(nn.Module):
    """A block of either stack, (b, n, width) to (b, n, width); a decoder's reads a memory."""

    def __init__(self, settings: T5Settings, attention: str, *, reads_memory: bool) -> None:
        super().__init__()

        def attend() -> MultiHead:
            return MultiHead(
                settings.width,
                settings.heads,
                head_width=settings.head_width,
                scale=1.0,
                dropout=settings.dropout,
                bias=False,
                kind=attention,
            )

        def norm() -> nn.RMSNorm:
            return nn.RMSNorm(settings.width, eps=settings.norm_epsilon)

        self.norm1 = norm()
        self.attention = attend()
        self.cross_norm = norm() if reads_memory else None
        self.cross_attention = attend() if reads_memory else None
        self.norm2 = norm()
        self.mlp = FeedForward(settings)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor, bias: Tensor, memory: Tensor | None = None) -> Tensor:
        """Attention, attention over the memory, then the network, each added to its input."""
        x = x + self.dropout(self.attention(self.norm1(x), mask=bias))
        if self.cross_norm is not None and self.cross_attention is not None:
            x = x + self.dropout(self.cross_attention(self.cross_norm(x), memory))
        y: Tensor = x + self.dropout(self.mlp(self.norm2(x)))
        return y


class Stack(nn.Module):
    """The encoder or the decoder: embedded tokens (b, n, width) to (b, n, width)."""

    def __init__(self, settings: T5Settings, attention: str, depth: int, *, decodes: bool) -> None:
        super().__init__()
        self.bias = RelativeBias(settings, causal=decodes)
        self.blocks = nn.ModuleList(
            Block(settings, attention, reads_memory=decodes) for _ in range(depth)
        )
        self.norm = nn.RMSNorm(settings.width, eps=settings.norm_epsilon)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        """All blocks under one bias, normalised at the end."""
        x = self.dropout(x)
        bias = self.bias(x)
        for block in self.blocks:
            x = block(x, bias, memory)
        y: Tensor = self.dropout(self.norm(x))
        return y


class T5(nn.Module):
    """Tokens (b, n) and target tokens (b, t) to logits (b, t, vocabulary)."""

    def __init__(self, settings: T5Settings, attention: str) -> None:
        super().__init__()
        width = settings.width
        self.tokens = nn.Embedding(settings.vocabulary, width)
        self.encoder = Stack(settings, attention, settings.depths[0], decodes=False)
        self.decoder = Stack(settings, attention, settings.depths[1], decodes=True)
        self.head = nn.Linear(width, settings.vocabulary, bias=False)
        # A tied table has weights of size 1, and logits are brought to that size before it.
        self.scale = width**-0.5 if settings.tied else 1.0
        self.apply(init_weights)
        for stack in (self.encoder, self.decoder):
            nn.init.normal_(stack.bias.table.weight, std=width**-0.5)
        if settings.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor, shifted: Tensor) -> Tensor:
        """Logits of the target token at every position, of the target one to the right."""
        memory = self.encoder(self.tokens(tokens))
        y = self.decoder(self.tokens(shifted), memory)
        logits: Tensor = self.head(y * self.scale)
        return logits


def init_weights(module: nn.Module) -> None:
    """Normal weights that keep the size of their input; a query's make up for the lost scale."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
    if isinstance(module, MultiHead):
        nn.init.normal_(
            module.query.weight, std=(module.query.in_features * module.head_width) ** -0.5
        )


def text_batches(settings: T5Settings, seed: int) -> Callable[[int, torch.device], Batch]:
    """A batch function: random texts and targets."""
    generator = torch.Generator().manual_seed(seed)

    def batch(micro_batch_size: int, device: torch.device) -> Batch:
        def text(length: int) -> Tensor:
            shape = (micro_batch_size, length)
            return torch.randint(1, settings.vocabulary, shape, generator=generator)

        tokens, target = text(settings.seq_len), text(settings.target_len)
        shifted = F.pad(target[:, :-1], (1, 0), value=START_TOKEN)
        return tokens.to(device), shifted.to(device), target.to(device)

    return batch


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean cross entropy over the target's tokens."""
    tokens, shifted, target = batch
    return F.cross_entropy(model(tokens, shifted).flatten(0, 1), target.flatten())


def blocks(model: nn.Module) -> list[nn.Module]:
    """The encoder's blocks, then the decoder's."""
    t5 = cast(T5, model)
    return [*t5.encoder.blocks, *t5.decoder.blocks]


def workload(spec: WorkloadSpec, entry: Entry) -> Workload:
    """The workload of a T5 entry; `--seq-len` is what the encoder reads.

    Raises:
        UsageError: settings that no model can be built with.
    """
    settings = read_settings(T5Settings, spec, entry)
    attention = check_attention(spec.attention)
    return Workload(
        model=lambda: T5(settings, attention),
        batch=text_batches(settings, spec.seed),
        loss=loss,
        count=lambda batch: batch[2].numel(),
        tokens_per_sample=settings.seq_len,
        uses_seq_len=True,
        uses_attention=True,
        checkpoint_blocks=blocks,
    )
