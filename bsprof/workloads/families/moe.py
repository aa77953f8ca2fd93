"""Mixture-of-experts decoders: Mixtral, OLMoE, Qwen-MoE.

The decoder of `decoder`, with a router and many small feed-forward layers in each block; each
token goes through its `chosen` best experts (Jiang et al. 2024, arXiv 2401.04088, section 2).

How tokens reach experts: every expert has a fixed number of rows for each sample, by default its
equal share `seq_len x chosen / experts`. Tokens take rows in the order of the text, and a token
finds no row where more than that chose the same expert before it; that expert then adds nothing
to it. Shapes are therefore fixed, nothing waits for the host, samples do not touch each other and
no token sees a later one. The work is that of a perfectly balanced router: each token through
`chosen` experts, as implementations that drop no token do it on average. With
`capacity_factor` = experts / chosen nothing is ever dropped, at that many times the work.

The small auxiliary losses that balance routers are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.catalogue.entries import Entry
from bsprof.workloads.families.decoder import Decoder, language_model
from bsprof.workloads.families.decoder_parts import FeedForward
from bsprof.workloads.families.decoder_settings import (
    ACTIVATIONS,
    DecoderSettings,
    choose_attention,
    decoder_settings,
)
from bsprof.workloads.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeSettings(DecoderSettings):
    """What defines a mixture-of-experts decoder; `feed_forward` is of one expert.

    Attributes:
        experts: Feed-forward layers to choose from.
        chosen: Experts that each token goes through.
        normalised: Whether the weights of the chosen experts are made to sum to one.
        shared_feed_forward: Features of a gated layer that every token goes through besides; 0
            has none (Qwen).
        capacity_factor: Rows of an expert as a multiple of its equal share.
    """

    experts: int
    chosen: int
    normalised: bool
    gated: bool = True
    shared_feed_forward: int = 0
    capacity_factor: float = 1.0


class Experts(nn.Module):
    """Gated feed-forward layers side by side, (experts, rows, width) to the same."""

    def __init__(self, settings: MoeSettings) -> None:
        super().__init__()
        experts, width, features = settings.experts, settings.width, settings.feed_forward
        self.activation = ACTIVATIONS[settings.activation]
        self.gate = _weights(experts, width, features)
        self.up = _weights(experts, width, features)
        self.down = _weights(experts, features, width)

    def forward(self, rows: Tensor) -> Tensor:
        """Every expert's layer over its rows."""
        y = self.activation(torch.bmm(rows, self.gate)) * torch.bmm(rows, self.up)
        return torch.bmm(y, self.down)


class SparseFeedForward(nn.Module):
    """A router and its experts, (b, n, width) to (b, n, width)."""

    def __init__(self, settings: MoeSettings) -> None:
        super().__init__()
        self.settings = settings
        self.router = nn.Linear(settings.width, settings.experts, bias=False)
        self.experts = Experts(settings)
        self.shared = self.shared_gate = None
        if settings.shared_feed_forward:
            self.shared = FeedForward(settings, settings.shared_feed_forward)
            self.shared_gate = nn.Linear(settings.width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The weighted sum of each token's experts, and of what all tokens share."""
        b, n, width = x.shape
        weights, experts = self.route(x)
        capacity = self.capacity(n)
        slots, kept = assign(experts, self.settings.experts, capacity)
        rows = x.flatten(0, 1).index_select(0, _sources(slots, self.settings.experts * capacity))
        outputs = self.experts(rows.view(self.settings.experts, b * capacity, width)).flatten(0, 1)
        # What found no row reads any, and its weight is zero.
        taken = outputs.index_select(0, slots.flatten().clamp(max=len(outputs) - 1))
        weights = weights.masked_fill(~kept, 0).to(outputs.dtype)
        y: Tensor = (taken.view(b, n, -1, width) * weights.unsqueeze(-1)).sum(dim=2)
        if self.shared is not None and self.shared_gate is not None:
            y = y + torch.sigmoid(self.shared_gate(x)) * self.shared(x)
        return y

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Weights in fp32 and indices of each token's experts, both (b, n, chosen)."""
        shares = self.router(x).softmax(dim=-1, dtype=torch.float32)
        weights, experts = shares.topk(self.settings.chosen, dim=-1)
        if self.settings.normalised:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights, experts

    def capacity(self, n: int) -> int:
        """Rows of an expert for a sample of n tokens."""
        share = n * self.settings.chosen / self.settings.experts
        return min(n, math.ceil(self.settings.capacity_factor * share))


def assign(experts: Tensor, count: int, capacity: int) -> tuple[Tensor, Tensor]:
    """The row of each token at each of its experts, and whether it found one.

    Args:
        experts: Chosen experts, (b, n, chosen), all different for a token.
        count: Experts that exist.
        capacity: Rows of an expert for each sample.

    Returns:
        Rows (b, n, chosen), counted through (expert, sample, place); one past the last where the
        expert's rows were full. And a mask of the same shape.
    """
    b, n, _ = experts.shape
    chose = torch.zeros(b, n, count, dtype=torch.long, device=experts.device)
    chose = chose.scatter(2, experts, 1)
    earlier = chose.cumsum(dim=1) - chose
    place = earlier.gather(2, experts)
    kept = place < capacity
    sample = torch.arange(b, device=experts.device)[:, None, None]
    row = (experts * b + sample) * capacity + place
    return row.where(kept, count * b * capacity), kept


def _sources(slots: Tensor, rows_per_sample: int) -> Tensor:
    """The token, counted through (sample, place), whose features each row reads; 0 if none."""
    b, n, chosen = slots.shape
    tokens = torch.arange(b * n, device=slots.device).repeat_interleave(chosen)
    sources = tokens.new_zeros(b * rows_per_sample + 1)
    return sources.scatter(0, slots.flatten(), tokens)[:-1]


def workload(spec: WorkloadSpec, entry: Entry) -> Workload:
    """The workload of a catalogue entry of family `moe`.

    Raises:
        UsageError: a setting that cannot be, or an attention that this model does not have.
    """
    settings = decoder_settings(MoeSettings, spec, entry)
    if settings.chosen > settings.experts:
        raise UsageError(
            f"{entry.name} cannot choose {settings.chosen} of {settings.experts} experts",
            next_step="change chosen or experts with --model-option",
        )
    attention = choose_attention(spec, settings)
    return language_model(
        spec, settings, lambda: Decoder(settings, attention, lambda: SparseFeedForward(settings))
    )


def _weights(experts: int, inputs: int, outputs: int) -> nn.Parameter:
    """Weights (experts, inputs, outputs), spread as those of PyTorch's linear layers."""
    bound = 1 / math.sqrt(inputs)
    return nn.Parameter(nn.init.uniform_(torch.empty(experts, inputs, outputs), -bound, bound))
