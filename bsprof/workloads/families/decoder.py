"""Decoder-only language models, from GPT-2 to Llama, Qwen, Gemma, Phi, MPT, OPT and Pythia.

One model, configured: what each of them does is in its catalogue entry, and what each setting
means in `decoder_settings.DecoderSettings`. Attention is `sdpa` or `eager`; where scores are
capped softly (Gemma 2) it is `eager`, because PyTorch's fused attention has no such step.

The loss is the mean cross entropy of the next token at every position, of logits in fp32: Meta's
Llama, GPT-NeoX, Megatron and Hugging Face's models all convert them, and autocast would.

Weights start as PyTorch's layers make them, embeddings scaled down: building is the larger part
of a short sweep, and the cost of a step does not depend on the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.gpt import INIT_STD, Tokens, token_batches
from bsprof.workloads.catalogue.entries import Entry
from bsprof.workloads.families.decoder_parts import (
    Attention,
    FeedForward,
    Places,
    alibi_slopes,
    make_norm,
    rotation,
    score_bias,
)
from bsprof.workloads.families.decoder_settings import (
    DecoderSettings,
    choose_attention,
    decoder_settings,
)
from bsprof.workloads.workload import Workload

Half = Callable[[], nn.Module]
"""Makes the second half of a block, (b, n, width) to (b, n, width)."""


class Block(nn.Module):
    """Attention and a second half, each added to its input; (b, n, width) to (b, n, width)."""

    def __init__(
        self, settings: DecoderSettings, attention: str, second_half: Half, *, windowed: bool
    ) -> None:
        super().__init__()
        self.place = settings.norm_place
        self.parallel = settings.parallel
        self.norm1 = make_norm(settings, settings.width)
        self.attention = Attention(settings, attention, windowed=windowed)
        self.norm2 = make_norm(settings, settings.width)
        self.mlp = second_half()
        if self.place == "both":
            self.norm1_after = make_norm(settings, settings.width)
            self.norm2_after = make_norm(settings, settings.width)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor, places: Places) -> Tensor:
        """Both halves; in a parallel block both of its input."""
        y: Tensor
        if self.place == "after":
            x = self.norm1(x + self.dropout(self.attention(x, places)))
            y = self.norm2(x + self.dropout(self.mlp(x)))
            return y
        attended = self.attention(self.norm1(x), places)
        if self.place == "both":
            attended = self.norm1_after(attended)
        attended = x + self.dropout(attended)
        added = self.mlp(self.norm2(x if self.parallel else attended))
        if self.place == "both":
            added = self.norm2_after(added)
        y = attended + self.dropout(added)
        return y


class Decoder(nn.Module):
    """Token indices (b, n) to logits (b, n, vocabulary).

    Args:
        settings: What defines it.
        attention: `sdpa` or `eager`.
        second_half: Makes the second half of each block; None is a dense `FeedForward`.
    """

    def __init__(
        self, settings: DecoderSettings, attention: str, second_half: Half | None = None
    ) -> None:
        super().__init__()
        self.settings = settings
        self.kind = attention
        width = settings.width
        narrow = settings.embedding_width or width
        self.tokens = _embedding(settings.vocabulary, narrow)
        self.positions = _embedding(settings.positions, width) if settings.positions else None
        self.into = self.back = None
        if narrow != width:
            self.into = nn.Linear(narrow, width, bias=False)
            self.back = nn.Linear(width, narrow, bias=False)
        self.dropout = nn.Dropout(settings.embedding_dropout)
        half = second_half or (lambda: FeedForward(settings))
        self.blocks = nn.ModuleList(
            Block(settings, attention, half, windowed=_is_windowed(settings, layer))
            for layer in range(settings.layers)
        )
        self.norm = None if settings.norm_place == "after" else make_norm(settings, width)
        # A tied projection needs no weights of its own: made on no device, then replaced.
        place = "meta" if settings.tied else None
        self.head = nn.Linear(narrow, settings.vocabulary, bias=False, device=place)
        if settings.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position, in the type of the computation."""
        x = self._embed(tokens)
        places = self._places(x)
        for block in self.blocks:
            x = block(x, places)
        if self.norm is not None:
            x = self.norm(x)
        if self.back is not None:
            x = self.back(x)
        logits: Tensor = self.head(x)
        cap = self.settings.logit_cap
        return cap * torch.tanh(logits / cap) if cap else logits

    def _embed(self, tokens: Tensor) -> Tensor:
        """(b, n) to (b, n, width)."""
        x = self.tokens(tokens)
        if self.into is not None:
            x = self.into(x)
        if self.settings.scaled_embedding:
            x = x * math.sqrt(self.settings.width)
        if self.positions is not None:
            first = self.settings.first_position
            x = x + self.positions(
                torch.arange(first, first + tokens.shape[1], device=tokens.device)
            )
        out: Tensor = self.dropout(x)
        return out

    def _places(self, x: Tensor) -> Places:
        """What all blocks share, for x (b, n, width)."""
        settings, n = self.settings, x.shape[1]
        turns = None
        if settings.rotary_width:
            turns = rotation(n, settings.rotary_width, settings.rotary_base, x)
        slopes = alibi_slopes(settings.heads, x) if settings.alibi else None
        # Without a bias the fused attention masks by itself, at half the work.
        needed = self.kind == "eager" or slopes is not None
        bias = score_bias(n, 0, slopes, x) if needed else None
        window_bias = bias
        if 0 < settings.window < n:
            window_bias = score_bias(n, settings.window, slopes, x)
        return Places(turns, bias, window_bias)


def loss(model: nn.Module, batch: Tokens) -> Tensor:
    """Mean cross entropy of the next token over all positions, in fp32."""
    tokens, targets = batch
    return F.cross_entropy(model(tokens).float().flatten(0, 1), targets.flatten())


def language_model(
    spec: WorkloadSpec, settings: DecoderSettings, model: Callable[[], Decoder]
) -> Workload:
    """The workload of training a decoder on random text."""
    return Workload(
        model=model,
        batch=token_batches(settings.vocabulary, settings.seq_len, spec.seed),
        loss=loss,
        count=lambda batch: batch[1].numel(),
        tokens_per_sample=settings.seq_len,
        uses_seq_len=True,
        uses_attention=True,
        checkpoint_blocks=lambda model: cast(Sequence[nn.Module], cast(Decoder, model).blocks),
    )


def workload(spec: WorkloadSpec, entry: Entry) -> Workload:
    """The workload of a catalogue entry of family `decoder`.

    Raises:
        UsageError: a setting that cannot be, a sequence beyond the learned positions, or an
            attention that this model does not have.
    """
    settings = decoder_settings(DecoderSettings, spec, entry)
    attention = choose_attention(spec, settings)
    return language_model(spec, settings, lambda: Decoder(settings, attention))


def _is_windowed(settings: DecoderSettings, layer: int) -> bool:
    return settings.window > 0 and layer % settings.window_every == 0


def _embedding(rows: int, width: int) -> nn.Embedding:
    """A table whose entries are as small as GPT-2's: PyTorch's own would drown what is added."""
    table = nn.Embedding(rows, width)
    with torch.no_grad():
        table.weight.mul_(INIT_STD)
    return table
