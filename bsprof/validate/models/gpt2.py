"""GPT-2 124M as public single-file trainers write it: fused query, key and value, tied output."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.workloads.builtins.gpt import Tokens, token_batches
from bsprof.workloads.workload import Workload

LAYERS, WIDTH, HEADS, POSITIONS = 12, 768, 12, 1024
VOCABULARY = 50_304
"""GPT-2's 50,257 tokens rounded up to a multiple of 128, as these trainers do."""


class FusedCrossEntropy(torch.autograd.Function):
    """Mean cross entropy as a compiler fuses it: what it keeps is the logits, in their own type.

    The fp32 numbers between logits and loss are never written to memory, nor is the softmax: only
    the logits and one normaliser a row. A compiled model that returns its logits beside the loss
    gets a gradient of zeros for them: autograd makes one for every output of the compiled function
    that takes part in no loss.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, returned: bool) -> Tensor:
        """Mean over rows of logits (n, vocabulary) and targets (n,).

        Args:
            ctx: Of autograd.
            logits, targets: As they are.
            returned: Whether the model returns the logits, too.
        """
        ctx.returned = returned
        rows = logits.new_empty(logits.shape[0], dtype=torch.float32)
        ctx.save_for_backward(logits, targets, rows)
        return rows.mean()

    @staticmethod
    def backward(ctx: Any, *_grads: Any) -> Any:
        """One gradient of the logits, in their type."""
        logits, _, _ = ctx.saved_tensors
        zeros = torch.zeros_like(logits) if ctx.returned else None
        grad = torch.empty_like(logits)
        del zeros
        return grad, None, None


class Attention(nn.Module):
    """Causal attention; (b, n, width) to (b, n, width)."""

    def __init__(self, kind: str, *, keeps_mask: bool) -> None:
        super().__init__()
        self.kind = kind
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)
        if keeps_mask:
            mask = torch.tril(torch.ones(POSITIONS, POSITIONS))
            self.register_buffer("mask", mask.view(1, 1, POSITIONS, POSITIONS))

    def forward(self, x: Tensor) -> Tensor:
        """All heads at once."""
        b, n, _ = x.shape
        q, k, v = (
            part.view(b, n, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.c_attn(x).split(WIDTH, dim=2)
        )
        if self.kind == "eager":
            scores = q @ k.transpose(-2, -1)
            scores = scores / math.sqrt(WIDTH // HEADS)
            scores = scores.masked_fill(cast(Tensor, self.mask)[:, :, :n, :n] == 0, -math.inf)
            z = scores.softmax(dim=-1) @ v
        else:
            z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.c_proj(z.transpose(1, 2).contiguous().view(b, n, WIDTH))
        return out


class Block(nn.Module):
    """Attention and feed-forward, each added to its input."""

    def __init__(self, kind: str, *, keeps_mask: bool) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = Attention(kind, keeps_mask=keeps_mask)
        self.c_fc, self.c_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """(b, n, width) to (b, n, width)."""
        x = x + self.attn(self.ln_1(x))
        y: Tensor = x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))
        return y


class Gpt2(nn.Module):
    """Tokens and targets to logits and loss, as these trainers' models return both."""

    def __init__(
        self, kind: str, *, keeps_mask: bool, compiled: bool, returns_logits: bool
    ) -> None:
        super().__init__()
        self.compiled, self.returns_logits = compiled, returns_logits
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(POSITIONS, WIDTH)
        self.h = nn.ModuleList(Block(kind, keeps_mask=keeps_mask) for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False, device="meta")
        self.lm_head.weight = self.wte.weight
        self.held: Tensor | None = None

    def forward(self, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (b, n, vocabulary) and their mean loss."""
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        logits: Tensor = self.lm_head(self.ln_f(x))
        flat, labels = logits.view(-1, VOCABULARY), targets.flatten()
        if self.compiled:
            return logits, FusedCrossEntropy.apply(flat, labels, self.returns_logits)  # type: ignore[no-untyped-call]
        return logits, F.cross_entropy(flat, labels, ignore_index=-1)


def workload(
    seq_len: int = POSITIONS,
    attention: str = "sdpa",
    keeps_mask: bool = False,
    compiled: bool = False,
    holds_logits: bool = False,
) -> Workload:
    """The trainer's workload.

    Args:
        seq_len: Tokens of a sample.
        attention: `sdpa`, or `eager` with the mask.
        keeps_mask: Whether each block keeps a mask of all positions.
        compiled: Whether the loss is fused.
        holds_logits: Whether the model returns the logits and the loop keeps them until the next.
    """

    def loss(model: nn.Module, batch: Tokens) -> Tensor:
        logits, value = model(*batch)
        if holds_logits:
            model.held = logits.detach()
        result: Tensor = value
        return result

    return Workload(
        model=lambda: Gpt2(
            attention, keeps_mask=keeps_mask, compiled=compiled, returns_logits=holds_logits
        ),
        batch=token_batches(VOCABULARY, seq_len, 0),
        loss=loss,
        tokens_per_sample=seq_len,
    )
