"""Parts of decoder-only language models: norms, positions, attention, feed-forward layers."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.workloads.families.decoder_settings import ACTIVATIONS, DecoderSettings

ALIBI_RANGE = 8  # the smallest slope is 2 ** -8 (Press et al. 2022, section 3)


class Places(NamedTuple):
    """What depends on positions alone, made once for all blocks.

    Attributes:
        rotation: Cosines and sines, each (n, rotary_width).
        bias: Added to the scores of blocks that see all, (n, n) or (heads, n, n); None is a plain
            causal mask.
        window_bias: Likewise for blocks with a window.
    """

    rotation: tuple[Tensor, Tensor] | None
    bias: Tensor | None
    window_bias: Tensor | None


class RMSNorm(nn.Module):
    """Root mean square normalisation (Zhang and Sennrich 2019, arXiv 1910.07467), (..., width).

    Args:
        width: Features to normalise over.
        epsilon: Added to the mean square.
        offset: Whether the weight is kept as its difference from one.
    """

    def __init__(self, width: int, epsilon: float, *, offset: bool = False) -> None:
        super().__init__()
        self.offset = offset
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.zeros(width) if offset else torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise over the last dimension, in the type of x."""
        weight = 1 + self.weight if self.offset else self.weight
        # The fused kernel wants one type: under autocast some inputs are bf16, weights are not.
        return F.rms_norm(x, weight.shape, weight.to(x.dtype), self.epsilon)


def make_norm(settings: DecoderSettings, width: int) -> nn.Module:
    """The kind of norm that the settings name, over `width` features."""
    if settings.norm == "rms":
        return RMSNorm(width, settings.norm_epsilon, offset=settings.norm_offset)
    return nn.LayerNorm(width, settings.norm_epsilon, bias=settings.norm_bias)


def rotation(n: int, width: int, base: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines (n, width) of rotary positions, in the type and on the device of `like`.

    Feature i and feature i + width / 2 are a pair, turned by position x base ** (-2 i / width)
    (Su et al. 2021, arXiv 2104.09864, section 3.2.2, in the order of GPT-NeoX).
    """
    exponents = torch.arange(0, width, 2, device=like.device, dtype=torch.float32) / width
    places = torch.arange(n, device=like.device, dtype=torch.float32)
    angles = torch.outer(places, base**-exponents).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn the first features of every head by its position; (b, heads, n, head_width) kept."""
    cosines, sines = cosines.to(x.dtype), sines.to(x.dtype)
    width, whole = cosines.shape[-1], x.shape[-1]
    if width == whole:
        return _turned(x, cosines, sines)
    turned, rest = torch.split(x, [width, whole - width], dim=-1)
    return torch.cat([_turned(turned, cosines, sines), rest], dim=-1)


def _turned(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cosines + torch.cat([-right, left], dim=-1) * sines


def alibi_slopes(heads: int, like: Tensor) -> Tensor:
    """Slope of every head (heads,), in fp32 on the device of `like`.

    2 ** (-8 i / heads) for a power of two; else every second slope of the next power first, then
    the others, as MPT does (Press et al. 2022, arXiv 2108.12409, section 3 and footnote 6).
    """
    power: int = 2 ** math.ceil(math.log2(heads))
    exponents = torch.arange(1, power + 1, device=like.device) * (ALIBI_RANGE / power)
    slopes = 2**-exponents
    return slopes if power == heads else torch.cat([slopes[1::2], slopes[::2]])[:heads]


def score_bias(n: int, window: int, slopes: Tensor | None, like: Tensor) -> Tensor:
    """What is added to scores, (n, n) or with slopes (heads, n, n): -inf hides a token.

    Args:
        n: Tokens.
        window: Nearest tokens that are seen; 0 is all up to the token itself.
        slopes: Of ALiBi: a score loses slope x distance.
        like: Gives type and device.
    """
    places = torch.arange(n, device=like.device)
    distance = places[:, None] - places
    hidden = distance < 0
    if window:
        hidden |= distance >= window
    bias = torch.zeros(n, n, device=like.device)
    if slopes is not None:
        bias = -slopes[:, None, None] * distance
    return bias.masked_fill(hidden, float("-inf")).to(like.dtype)


class Attention(nn.Module):
    """Causal self-attention (b, n, width) to (b, n, width), by the settings.

    Args:
        settings: Of the decoder.
        kind: `sdpa` is PyTorch's fused attention; `eager` the formula spelled out, with the whole
            matrix of weights in memory and its softmax in fp32, as Hugging Face's models do.
        windowed: Whether this block has the window.
    """

    def __init__(self, settings: DecoderSettings, kind: str, *, windowed: bool) -> None:
        super().__init__()
        self.kind = kind
        self.windowed = windowed
        self.head_width = settings.head_width
        self.groups = settings.heads // settings.key_heads
        self.scale = 1 / math.sqrt(settings.head_width)
        self.dropout = settings.attention_dropout
        self.cap = settings.attention_cap
        bias = settings.bias or settings.qkv_bias
        self.sizes = [
            settings.heads * settings.head_width,
            *[settings.key_heads * settings.head_width] * 2,
        ]
        self.fused = settings.fused_qkv
        if self.fused:
            self.qkv = nn.Linear(settings.width, sum(self.sizes), bias=bias)
        else:
            self.query = nn.Linear(settings.width, self.sizes[0], bias=bias)
            self.key = nn.Linear(settings.width, self.sizes[1], bias=bias)
            self.value = nn.Linear(settings.width, self.sizes[2], bias=bias)
        self.query_norm = self.key_norm = None
        if settings.query_norm:
            self.query_norm = make_norm(settings, self.sizes[0])
            self.key_norm = make_norm(settings, self.sizes[1])
        self.out = nn.Linear(self.sizes[0], settings.width, bias=settings.bias)

    def forward(self, x: Tensor, places: Places) -> Tensor:
        """Attend; (b, n, width) to (b, n, width)."""
        query, key, value = self._project(x)
        if places.rotation is not None:
            query, key = rotate(query, *places.rotation), rotate(key, *places.rotation)
        bias = places.window_bias if self.windowed else places.bias
        if bias is not None:
            bias = bias.to(query.dtype)
        dropout = self.dropout if self.training else 0.0
        attend = self._fused if self.kind == "sdpa" else self._eager
        y = attend(query, key, value, bias, dropout)
        out: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return out

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query (b, heads, n, head_width), key and value (b, key_heads, n, head_width)."""
        if self.fused:
            query, key, value = self.qkv(x).split(self.sizes, dim=-1)
        else:
            query, key, value = self.query(x), self.key(x), self.value(x)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        return self._split(query), self._split(key), self._split(value)

    def _split(self, x: Tensor) -> Tensor:
        """(b, n, heads x head_width) to (b, heads, n, head_width)."""
        b, n, _ = x.shape
        return x.view(b, n, -1, self.head_width).transpose(1, 2)

    def _repeat(self, x: Tensor) -> Tensor:
        """Keys or values once for every query head."""
        return x if self.groups == 1 else x.repeat_interleave(self.groups, dim=1)

    def _fused(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout: float
    ) -> Tensor:
        # CUDA's kernels take fewer key heads only in half precision and without a bias; elsewhere
        # PyTorch would fall back on the whole matrix of scores.
        grouped = self.groups > 1 and bias is None and query.dtype is not torch.float32
        if not grouped:
            key, value = self._repeat(key), self._repeat(value)
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=bias,
            dropout_p=dropout,
            is_causal=bias is None,
            scale=self.scale,
            enable_gqa=grouped,
        )

    def _eager(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout: float
    ) -> Tensor:
        """softmax(cap(q k^T scale) + bias) v."""
        scores = query @ self._repeat(key).transpose(-2, -1) * self.scale
        if self.cap:
            scores = self.cap * torch.tanh(scores / self.cap)
        assert bias is not None, "nothing hides the future"
        weights = (scores + bias).softmax(dim=-1, dtype=torch.float32).to(value.dtype)
        return F.dropout(weights, dropout) @ self._repeat(value)


class FeedForward(nn.Module):
    """The second half of a block, (b, n, width) to (b, n, width).

    Args:
        settings: Of the decoder.
        features: Between its linear layers; None is the settings' `feed_forward`.
    """

    def __init__(self, settings: DecoderSettings, features: int | None = None) -> None:
        super().__init__()
        features = settings.feed_forward if features is None else features
        self.activation = ACTIVATIONS[settings.activation]
        self.gated = settings.gated
        self.fused = settings.gated and settings.fused_gate
        bias = settings.bias
        if self.fused:
            self.gate_up = nn.Linear(settings.width, 2 * features, bias=bias)
        else:
            self.up = nn.Linear(settings.width, features, bias=bias)
            if self.gated:
                self.gate = nn.Linear(settings.width, features, bias=bias)
        self.down = nn.Linear(features, settings.width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Widen, activate, narrow."""
        if self.fused:
            gate, up = self.gate_up(x).chunk(2, dim=-1)
            y = self.activation(gate) * up
        elif self.gated:
            y = self.activation(self.gate(x)) * self.up(x)
        else:
            y = self.activation(self.up(x))
        out: Tensor = self.down(y)
        return out
