"""Models, batches and gradients that the tests of accumulation compare with: the plain sums."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

IGNORED = -100
TOLERANCE = 1e-12


class Tagger(nn.Module):
    """Tokens (b, n) to logits (b, n, 7), with a layer norm; no state, no randomness."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.inner = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 7)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        x = self.norm(x + torch.tanh(self.inner(x)))
        logits: Tensor = self.head(x + x.mean(dim=1, keepdim=True))
        return logits


def tagger() -> nn.Module:
    torch.manual_seed(0)
    return Tagger().double()


def batch(samples: int, *, seed: int = 1, tokens: int = 6) -> dict[str, Tensor]:
    """Tokens and labels of different numbers: a sample ignores up to five of its six."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(11, (samples, tokens), generator=generator)
    labels = torch.randint(7, (samples, tokens), generator=generator)
    kept = torch.randint(1, tokens + 1, (samples, 1), generator=generator)
    labels[torch.arange(tokens) >= kept] = IGNORED
    return {"input_ids": ids, "labels": labels}


def token_mean(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(batch["input_ids"])
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED)


def sample_mean(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(batch["input_ids"])
    labels = batch["labels"]
    each = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=IGNORED, reduction="none")
    kept = (labels != IGNORED).sum(1).clamp(min=1)
    return (each.sum(1) / kept).mean()


LOSSES = {"samples": sample_mean, "tokens": token_mean}


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None}


def whole_gradients(loss, batch, make=tagger) -> dict[str, Tensor]:
    model = make()
    loss(model, batch).backward()
    return gradients(model)


def relative_difference(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    assert found.keys() == wanted.keys()
    return max(
        float((found[name] - wanted[name]).norm() / wanted[name].norm().clamp(min=1e-300))
        for name in wanted
    )
