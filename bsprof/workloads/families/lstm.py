"""LSTM language models, trained by backpropagation through a truncated text.

Zaremba et al. 2014, arXiv 1409.2329, and Merity et al. 2017, arXiv 1708.02182. A sample is the
stretch of text that gradients flow through; it starts from a zero state, because a state that is
handed on from the stretch before costs the same. Each layer is an `nn.LSTM` of its own.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import cast

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.gpt import token_batches
from bsprof.workloads.catalogue.entries import Entry
from bsprof.workloads.families.settings import read_settings
from bsprof.workloads.workload import Workload

INIT_RANGE = 0.1  # of the embeddings in PyTorch's word_language_model example

Batch = tuple[Tensor, Tensor]
"""Tokens (b, seq_len) and the token after each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LSTMSettings:
    """What defines an LSTM language model.

    Attributes:
        layers: Recurrent layers.
        embedding: Features of a token.
        width: Features of a layer's state.
        tied: Whether the output shares the table of embeddings; the last layer then has the
            width of an embedding.
        vocabulary: Tokens that exist.
        dropout: Share dropped from the embeddings and from the output of every layer.
        seq_len: Tokens that gradients flow through.
    """

    layers: int
    embedding: int
    width: int
    tied: bool
    vocabulary: int
    dropout: float
    seq_len: int

    def widths(self) -> list[int]:
        """Features at the input and after each layer."""
        last = self.embedding if self.tied else self.width
        return [self.embedding, *[self.width] * (self.layers - 1), last]


class Layer(nn.Module):
    """One recurrent layer, (b, n, features in) to (b, n, features out)."""

    def __init__(self, features_in: int, features_out: int, dropout: float) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features_in, features_out, batch_first=True)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """The output of every step, from a zero state."""
        y: Tensor = self.dropout(self.lstm(x)[0])
        return y


class LanguageModel(nn.Module):
    """Token indices (b, n) to logits (b, n, vocabulary)."""

    def __init__(self, settings: LSTMSettings) -> None:
        super().__init__()
        widths = settings.widths()
        self.tokens = nn.Embedding(settings.vocabulary, settings.embedding)
        self.dropout = nn.Dropout(settings.dropout)
        # Not a list: torch.compile leaves a function eager in which it cannot compile a loop.
        self.layers = nn.Sequential(
            *(
                Layer(features_in, features_out, settings.dropout)
                for features_in, features_out in itertools.pairwise(widths)
            )
        )
        self.head = nn.Linear(widths[-1], settings.vocabulary)
        for weight in (self.tokens.weight, self.head.weight):
            nn.init.uniform_(weight, -INIT_RANGE, INIT_RANGE)
        nn.init.zeros_(self.head.bias)
        if settings.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        x = self.layers(self.dropout(self.tokens(tokens)))
        logits: Tensor = self.head(x)
        return logits


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean cross entropy over all tokens."""
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def workload(spec: WorkloadSpec, entry: Entry) -> Workload:
    """The workload of an LSTM language model; `--seq-len` is how far gradients flow.

    Raises:
        UsageError: settings that no model can be built with.
    """
    settings = read_settings(LSTMSettings, spec, entry)
    return Workload(
        model=lambda: LanguageModel(settings),
        batch=token_batches(settings.vocabulary, settings.seq_len, spec.seed),
        loss=loss,
        count=lambda batch: batch[1].numel(),
        tokens_per_sample=settings.seq_len,
        uses_seq_len=True,
        checkpoint_blocks=lambda model: list(cast(LanguageModel, model).layers),
    )
