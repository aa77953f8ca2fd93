"""Llama 3.2 3B as torchtune trains it: its norms, its rotations, its loss in chunks.

`compiled` stands for torchtune compiling each layer: norms keep their input alone, and the gate's
activation is recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from bsprof.validate.models.gpt2 import FusedCrossEntropy
from bsprof.validate.models.huggingface import FusedNorm
from bsprof.workloads.builtins.gpt import Tokens, token_batches
from bsprof.workloads.workload import Workload

LAYERS, WIDTH, HEADS, GROUPS, HEAD, HIDDEN, VOCABULARY = 28, 3072, 24, 8, 128, 8192, 128_256
CHUNKS = 8
"""Of the loss, along the tokens."""


class FusedGate(torch.autograd.Function):
    """SiLU of one product times another, as one kernel each way: it keeps the two products."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, value: Tensor) -> Tensor:
        """Elementwise."""
        ctx.save_for_backward(gate, value)
        return torch.empty_like(gate)

    @staticmethod
    def backward(_ctx: Any, *grads: Any) -> Any:
        """Gradients of both."""
        return torch.empty_like(grads[0]), torch.empty_like(grads[0])


class Norm(nn.Module):
    """RMS norm in fp32, back in the type of its input, then scaled."""

    def __init__(self, *, compiled: bool) -> None:
        super().__init__()
        self.compiled = compiled
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Over the last dimension."""
        if self.compiled:
            out: Tensor = FusedNorm.apply(x, self.scale)  # type: ignore[no-untyped-call]
            return out
        wide = x.float()
        normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x)
        return normed * self.scale


def rotated(x: Tensor, table: Tensor) -> Tensor:
    """Pairs of features of x (b, n, heads, features) turned by the table's angles, in fp32."""
    pairs = x.float().reshape(*x.shape[:-1], -1, 2)
    cos, sin = table.view(1, pairs.size(1), 1, pairs.size(3), 2).unbind(-1)
    a, b = pairs[..., 0], pairs[..., 1]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(3).type_as(x)


class Layer(nn.Module):
    """Attention and a gated feed-forward half."""

    def __init__(self, *, compiled: bool) -> None:
        super().__init__()
        self.compiled = compiled
        self.norm1, self.norm2 = Norm(compiled=compiled), Norm(compiled=compiled)
        self.q = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.k = nn.Linear(WIDTH, GROUPS * HEAD, bias=False)
        self.v = nn.Linear(WIDTH, GROUPS * HEAD, bias=False)
        self.out = nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.w1 = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.w3 = nn.Linear(WIDTH, HIDDEN, bias=False)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """(b, n, width) to (b, n, width)."""
        b, n, _ = x.shape
        h = self.norm1(x)
        q = rotated(self.q(h).view(b, n, HEADS, HEAD), table).transpose(1, 2)
        k = rotated(self.k(h).view(b, n, GROUPS, HEAD), table).transpose(1, 2)
        v = self.v(h).view(b, n, GROUPS, HEAD).transpose(1, 2)
        shape = (b, GROUPS, HEADS // GROUPS, n, HEAD)
        k = k.unsqueeze(2).expand(shape).flatten(1, 2)
        v = v.unsqueeze(2).expand(shape).flatten(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, n, -1))
        h = self.norm2(x)
        gate, value = self.w1(h), self.w3(h)
        fused: Callable[..., Tensor] = FusedGate.apply  # what the compiler makes of the other
        inner = fused(gate, value) if self.compiled else F.silu(gate) * value
        z: Tensor = x + self.w2(inner)
        return z


class Llama(nn.Module):
    """Tokens (b, n) to chunks of logits."""

    def __init__(self, *, compiled: bool, chunks: int) -> None:
        super().__init__()
        self.chunks = chunks
        self.fused_loss = compiled and chunks > 1
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer(compiled=compiled) for _ in range(LAYERS))
        self.norm = Norm(compiled=compiled)

    def forward(self, tokens: Tensor) -> list[Tensor]:
        """The output projection is the embedding."""
        x = self.embedding(tokens)
        n = tokens.shape[1]
        table = torch.empty(n, HEAD // 2, 2, device=x.device)
        for layer in self.layers:
            x = layer(x, table)
        x = self.norm(x)
        pieces = x.chunk(self.chunks, dim=1)
        logits = [F.linear(piece, self.embedding.weight) for piece in pieces]
        return [piece.float() for piece in logits] if self.chunks == 1 else logits


def loss(model: nn.Module, batch: Tokens) -> Tensor:
    """Mean cross entropy, each chunk converted to fp32 on its own; fused where it is compiled."""
    tokens, targets = batch
    logits = model(tokens)
    labels = targets.chunk(len(logits), dim=1)
    total = torch.zeros((), device=tokens.device)
    for piece, part in zip(logits, labels, strict=True):
        flat, wanted = piece.reshape(-1, VOCABULARY), part.reshape(-1)
        if model.fused_loss:
            total = total + FusedCrossEntropy.apply(  # type: ignore[no-untyped-call]
                flat, wanted, False
            )
        else:
            total = total + F.cross_entropy(flat.float(), wanted, reduction="sum")
    return total / targets.numel()


class StepInBackward(Optimizer):
    """AdamW that steps each parameter as soon as its gradient is there, and drops the gradient."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(list(parameters), {})
        for group in self.param_groups:
            for parameter in group["params"]:
                own = AdamW([parameter], fused=True)
                parameter.register_post_accumulate_grad_hook(_stepping(own))

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """All is done already."""


def _stepping(optimizer: Optimizer) -> Any:
    def hook(_parameter: Tensor) -> None:
        optimizer.step()
        optimizer.zero_grad()

    return hook


def workload(
    seq_len: int = 4096,
    compiled: bool = False,
    chunked: bool = False,
    in_backward: bool = False,
) -> Workload:
    """Full fine-tuning on packed samples.

    Args:
        seq_len: Tokens of a packed sample.
        compiled: Whether each layer is compiled.
        chunked: Whether the loss is computed in chunks.
        in_backward: Whether the optimizer steps within the backward pass.
    """
    return Workload(
        model=lambda: Llama(compiled=compiled, chunks=CHUNKS if chunked else 1),
        batch=token_batches(VOCABULARY, seq_len, 0),
        loss=loss,
        optimizer=StepInBackward if in_backward else None,
        tokens_per_sample=seq_len,
        checkpoint_blocks=lambda model: list(model.layers),  # type: ignore[arg-type]
    )
