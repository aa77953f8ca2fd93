"""Decoders as litgpt runs them, with its LoRA: the layout of its tensors decides what is kept.

Values are a view of the fused product of query, key and value, so all three stay until backward;
RMS norm computes in fp32 and keeps its fp32 input; the logits come in chunks of 128 tokens, which
Lightning's half-precision plugin converts to fp32 on their way out of the model.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.validate.models.litgpt_sizes import SIZES, Size
from bsprof.workloads.builtins.gpt import Tokens, token_batches
from bsprof.workloads.workload import Workload

CHUNK = 128
"""Tokens of a chunk of logits, and of a chunk of the loss."""


LOGIT_CAP, SCORE_CAP = 30.0, 50.0
"""Gemma 2's soft caps."""


class RmsNorm(nn.Module):
    """Root mean square norm in fp32, its result back in the type of the input."""

    def __init__(self, width: int, *, offset: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        """Over the last dimension."""
        dtype = x.dtype
        x = x.float()
        mean = torch.mean(x * x, dim=-1, keepdim=True)
        normed = (x * torch.rsqrt(mean + 1e-6)).to(dtype)
        return normed * (1 + self.weight) if self.offset else normed * self.weight


class LoraLinear(nn.Module):
    """A linear layer and, with a rank, its adapter behind a dropout."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, rank: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=bias)
        self.rank = rank
        if rank:
            self.lora_A = nn.Parameter(torch.zeros(rank, inputs))
            self.lora_B = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        y: Tensor = self.linear(x)
        if not self.rank:
            return y
        dropped = F.dropout(x, 0.05)
        return y + (dropped @ self.lora_A.transpose(0, 1) @ self.lora_B.transpose(0, 1)) * 0.5


class LoraQkv(nn.Module):
    """The fused product of query, key and value, with adapters on some of the three."""

    def __init__(self, size: Size, *, rank: int, parts: tuple[bool, bool, bool]) -> None:
        super().__init__()
        outputs = (size.heads + 2 * size.groups) * size.head
        self.linear = nn.Linear(size.width, outputs, bias=size.bias)
        self.rank = rank if any(parts) else 0
        self.all_parts = all(parts)
        self.plain = size.heads == size.groups
        widths = [size.head * size.heads, size.head * size.groups, size.head * size.groups]
        self.widths = [width for width, on in zip(widths, parts, strict=True) if on]
        if self.rank:
            self.lora_A = nn.Parameter(torch.zeros(rank * len(self.widths), size.width))
            self.lora_B = nn.Parameter(torch.zeros(sum(self.widths), rank))

    def forward(self, x: Tensor) -> Tensor:
        """(b, n, width) to (b, n, heads and groups)."""
        y: Tensor = self.linear(x)
        if not self.rank:
            return y
        inner = F.linear(F.dropout(x, 0.05), self.lora_A).transpose(-2, -1)
        weight = self.lora_B.unsqueeze(-1)
        if self.plain:
            outer = F.conv1d(inner, weight, groups=len(self.widths))
        else:
            parts = zip(
                inner.chunk(len(self.widths), dim=1), torch.split(weight, self.widths), strict=True
            )
            outer = torch.cat([F.conv1d(a, w) for a, w in parts], dim=1)
        outer = outer.transpose(-2, -1)
        return y + self._padded(outer, y.shape[-1]) * 0.5

    def _padded(self, outer: Tensor, outputs: int) -> Tensor:
        """Zeros where no adapter is."""
        if self.all_parts:
            return outer
        turned = outer.transpose(0, 1)
        zeros = turned.new_zeros((*turned.shape[:-1], outputs)).view(-1, outputs)
        places = torch.arange(sum(self.widths), device=outer.device)
        filled = zeros.index_copy(1, places, turned.reshape(-1, sum(self.widths)))
        return filled.view((*turned.shape[:-1], outputs)).transpose(0, 1)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x (b, h, n, features), in the type of the tables, then in that of x."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return ((x * cos) + (turned * sin)).to(dtype=x.dtype)


class Attention(nn.Module):
    """(b, n, width) to (b, n, width)."""

    def __init__(self, size: Size, rank: int, parts: tuple[bool, bool, bool], *, out: bool) -> None:
        super().__init__()
        self.size = size
        self.attn = LoraQkv(size, rank=rank, parts=parts)
        self.proj = LoraLinear(
            size.head * size.heads, size.width, bias=size.bias, rank=rank if out else 0
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Causal."""
        s, (b, n, _) = self.size, x.shape
        per = s.heads // s.groups
        qkv = self.attn(x).view(b, n, s.groups, per + 2, s.head).permute(0, 2, 3, 1, 4)
        q, k, v = qkv.split((per, 1, 1), dim=2)
        if s.groups not in (s.heads, 1):
            k = k.expand(b, s.groups, per, n, s.head)
            v = v.expand(b, s.groups, per, n, s.head)
        q, k, v = (part.reshape(b, -1, n, s.head) for part in (q, k, v))
        r = s.rotary
        q = torch.cat((rotated(q[..., :r], cos, sin), q[..., r:]), dim=-1)
        k = torch.cat((rotated(k[..., :r], cos, sin), k[..., r:]), dim=-1)
        if s.cap:
            y = self._capped(q, k, v)
        else:
            if k.shape != q.shape:
                k, v = k.expand_as(q), v.expand_as(q)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(b, n, s.head * s.heads)
        out: Tensor = self.proj(y)
        return out

    def _capped(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scale = self.size.head**-0.5
        mask = torch.full((q.shape[2], q.shape[2]), float("-inf"), device=q.device, dtype=q.dtype)
        scores = q @ k.mT * scale
        scores = torch.tanh(scores / SCORE_CAP) * SCORE_CAP + mask.triu(1)
        return F.softmax(scores, dim=-1, dtype=torch.float).to(dtype=q.dtype) @ v


class Feed(nn.Module):
    """The feed-forward half."""

    def __init__(self, size: Size, rank: int) -> None:
        super().__init__()
        self.gated = size.gated
        self.fc_1 = LoraLinear(size.width, size.hidden, bias=size.bias, rank=rank)
        if size.gated:
            self.fc_2 = LoraLinear(size.width, size.hidden, bias=size.bias, rank=rank)
        self.proj = LoraLinear(size.hidden, size.width, bias=size.bias, rank=rank)

    def forward(self, x: Tensor) -> Tensor:
        """(b, n, width) to (b, n, width)."""
        if not self.gated:
            y: Tensor = self.proj(F.gelu(self.fc_1(x)))
            return y
        first, second = self.fc_1(x), self.fc_2(x)
        gate = F.silu(first) if self.gated == "silu" else F.gelu(first, approximate="tanh")
        z: Tensor = self.proj(gate * second)
        return z


class Block(nn.Module):
    """Both halves, one after the other or side by side."""

    def __init__(
        self, size: Size, rank: int, parts: tuple[bool, bool, bool], *, out: bool, feed: bool
    ) -> None:
        super().__init__()
        self.size = size
        self.norm_1 = _norm(size)
        self.attn = Attention(size, rank, parts, out=out)
        self.norm_2 = None if size.shared else _norm(size)
        self.mlp = Feed(size, rank if feed else 0)
        self.after_1 = _norm(size) if size.post_norms else nn.Identity()
        self.after_2 = _norm(size) if size.post_norms else nn.Identity()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """(b, n, width) to (b, n, width)."""
        normed = self.norm_1(x)
        attended = self.after_1(self.attn(normed, cos, sin))
        if self.size.parallel:
            other = normed if self.norm_2 is None else self.norm_2(x)
            y: Tensor = self.mlp(other) + attended + x
            return y
        assert self.norm_2 is not None
        x = attended + x
        z: Tensor = self.after_2(self.mlp(self.norm_2(x))) + x
        return z


class LitGpt(nn.Module):
    """Tokens (b, n) to logits: chunks along n, or one tensor where `chunk` is 0."""

    def __init__(
        self,
        size: Size,
        *,
        rank: int,
        parts: tuple[bool, bool, bool],
        out: bool,
        feed: bool,
        head: bool,
    ) -> None:
        super().__init__()
        self.size = size
        self.wte = nn.Embedding(size.vocabulary, size.width)
        self.h = nn.ModuleList(
            Block(size, rank, parts, out=out, feed=feed) for _ in range(size.layers)
        )
        self.ln_f = _norm(size)
        self.lm_head = LoraLinear(
            size.width, size.vocabulary, bias=size.bias, rank=rank if head else 0
        )

    def forward(self, tokens: Tensor, chunk: int = CHUNK) -> list[Tensor]:
        """Logits in chunks along the tokens."""
        x = self.wte(tokens)
        if self.size.offset:
            x = x * (self.size.width**0.5)
        # Made anew after the model was converted, and so in fp32.
        cos, sin = _tables(tokens.shape[1], self.size.rotary, tokens.device)
        for block in self.h:
            x = block(x, cos, sin)
        x = self.ln_f(x)
        pieces = x.split(chunk, dim=1) if chunk else (x,)
        logits = [self.lm_head(piece) for piece in pieces]
        if self.size.cap:
            logits = [torch.tanh(piece / LOGIT_CAP) * LOGIT_CAP for piece in logits]
        # What Lightning's plugin for half precision does to floating outputs.
        return [piece.float() for piece in logits]


def loss(model: nn.Module, batch: Tokens) -> Tensor:
    """Mean cross entropy, one chunk of logits after the other."""
    tokens, targets = batch
    logits = model(tokens)
    logits[-1] = logits[-1][..., :-1, :]
    flat = [piece.reshape(-1, piece.size(-1)) for piece in logits]
    labels = targets[..., 1:]
    parts = [
        part.reshape(-1)
        for part in torch.split(labels, [piece.shape[1] for piece in logits], dim=1)
    ]
    losses = [
        F.cross_entropy(piece, part, ignore_index=-100, reduction="none")
        for piece, part in zip(flat, parts, strict=True)
    ]
    return torch.cat(losses).sum() / labels.numel()


def workload(
    name: str,
    seq_len: int = 512,
    rank: int = 0,
    key: bool = False,
    out: bool = False,
    feed: bool = False,
    head: bool = False,
) -> Workload:
    """Fine-tuning with litgpt.

    Args:
        name: Of `SIZES`.
        seq_len: Tokens of the longest sample.
        rank: Of the adapters; 0 trains all weights.
        key, out, feed, head: Whether keys, the projection of attention, the feed-forward layers and
            the output have adapters, besides queries and values.
    """

    def model() -> LitGpt:
        built = LitGpt(
            SIZES[name], rank=rank, parts=(True, key, True), out=out, feed=feed, head=head
        )
        if rank:
            for parameter, weight in built.named_parameters():
                weight.requires_grad_("lora_" in parameter)
        return built

    return Workload(
        model=model,
        batch=token_batches(SIZES[name].vocabulary, seq_len, 0),
        loss=loss,
        tokens_per_sample=seq_len,
    )


def _norm(size: Size) -> nn.Module:
    if size.norm == "layer":
        return nn.LayerNorm(size.width)
    return RmsNorm(size.width, offset=size.offset)


def _tables(length: int, features: int, device: torch.device) -> tuple[Tensor, Tensor]:
    theta = 10_000 ** -(torch.arange(0, features, 2, device=device).float() / features)
    angles = torch.outer(torch.arange(length, device=device).float(), theta).repeat(1, 2)
    return angles.cos(), angles.sin()
