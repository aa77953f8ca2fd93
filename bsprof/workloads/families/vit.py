"""Vision transformers: ViT and DeiT, from a class token over patches.

Dosovitskiy et al. 2021, arXiv 2010.11929; DeiT is the same network trained otherwise, and with a
second token that learns from a teacher when distilled (Touvron et al. 2021, arXiv 2012.12877).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.attention import SelfAttention, check_attention
from bsprof.workloads.builtins.data import image_batches
from bsprof.workloads.catalogue.entries import Entry
from bsprof.workloads.families.settings import check_heads, read_settings
from bsprof.workloads.families.stochastic_depth import StochasticDepth, rising_rates
from bsprof.workloads.families.vision import CHANNELS, classification_loss, fitting_size
from bsprof.workloads.workload import Workload

INIT_STD = 0.02
NORM_EPS = 1e-6  # the original's, not PyTorch's 1e-5

DistilledImages = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the family.

    Attributes:
        layers: Transformer blocks.
        width: Features of a token.
        heads: Attention heads.
        mlp_width: Features between the two layers of a block's network.
        patch: Pixels per side of a patch.
        image_size: Pixels per side of an image.
        classes: Classes that are told apart.
        distilled: Whether a second token learns from a teacher.
        dropout: Share dropped after the positions, the attention and in the network.
        stochastic_depth: Rate at which the last block's branches are dropped.
    """

    layers: int
    width: int
    heads: int
    mlp_width: int
    patch: int
    image_size: int
    classes: int
    distilled: bool
    dropout: float
    stochastic_depth: float


class Block(nn.Module):
    """A pre-norm transformer block, (b, n, width) to (b, n, width)."""

    def __init__(self, settings: Settings, attention: str, stochastic_depth: float) -> None:
        super().__init__()
        width, inner, dropout = settings.width, settings.mlp_width, settings.dropout
        self.norm1 = nn.LayerNorm(width, eps=NORM_EPS)
        self.attention = SelfAttention(
            width, settings.heads, causal=False, dropout=0.0, kind=attention
        )
        self.norm2 = nn.LayerNorm(width, eps=NORM_EPS)
        self.mlp = nn.Sequential(
            nn.Linear(width, inner), nn.GELU(), nn.Dropout(dropout), nn.Linear(inner, width)
        )
        self.dropout = nn.Dropout(dropout)
        self.stochastic_depth = StochasticDepth(stochastic_depth)

    def forward(self, x: Tensor) -> Tensor:
        """Attention, then the two-layer network, each added to its input."""
        x = x + self.stochastic_depth(self.dropout(self.attention(self.norm1(x))))
        y: Tensor = x + self.stochastic_depth(self.dropout(self.mlp(self.norm2(x))))
        return y


class VisionTransformer(nn.Module):
    """Images (b, 3, size, size) to logits (b, classes), learned positions for that size.

    A distilled one has a second token with a head of its own: logits (b, 2, classes) in training,
    those of the class token first, and their mean (b, classes) in evaluation.
    """

    def __init__(self, settings: Settings, size: int, attention: str) -> None:
        super().__init__()
        width, patch = settings.width, settings.patch
        answers = 2 if settings.distilled else 1
        tokens = (size // patch) ** 2 + answers
        self.first_tokens = nn.Parameter(torch.zeros(1, answers, width))
        self.positions = nn.Parameter(torch.randn(1, tokens, width) * INIT_STD)
        self.patches = nn.Conv2d(CHANNELS, width, patch, stride=patch)
        self.dropout = nn.Dropout(settings.dropout)
        rates = rising_rates(settings.stochastic_depth, settings.layers)
        self.blocks = nn.ModuleList(Block(settings, attention, rate) for rate in rates)
        self.norm = nn.LayerNorm(width, eps=NORM_EPS)
        self.heads = nn.ModuleList(nn.Linear(width, settings.classes) for _ in range(answers))

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the classes."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        first = self.first_tokens.expand(len(x), -1, -1)
        x = self.dropout(torch.cat([first, x], dim=1) + self.positions)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        logits: list[Tensor] = [head(x[:, token]) for token, head in enumerate(self.heads)]
        if len(logits) == 1:
            return logits[0]
        both = torch.stack(logits, dim=1)
        return both if self.training else both.mean(dim=1)


def distillation_loss(model: nn.Module, batch: DistilledImages) -> Tensor:
    """Half the cross entropy with the labels, half that with the teacher's (hard distillation).

    The second token's head answers to the teacher. In evaluation, where logits are (b, classes),
    there is no teacher.
    """
    images, labels, teachers_labels = batch
    logits = model(images)
    if logits.dim() == 2:
        return F.cross_entropy(logits, labels)
    by_label = F.cross_entropy(logits[:, 0], labels)
    return (by_label + F.cross_entropy(logits[:, 1], teachers_labels)) / 2


def _distilled(workload: Workload, classes: int, seed: int) -> Workload:
    """The workload with what the teacher would have said, drawn at random, in its batches."""
    images, generator = workload.batch, torch.Generator().manual_seed(seed + 1)

    def batch(micro_batch_size: int, device: torch.device) -> DistilledImages:
        teachers = torch.randint(classes, (micro_batch_size,), generator=generator)
        return (*images(micro_batch_size, device), teachers.to(device))

    return replace(workload, batch=batch, loss=distillation_loss)


def workload(spec: WorkloadSpec, entry: Entry) -> Workload:
    """Image classification with an entry of this family.

    Raises:
        UsageError: a setting or an image size that the architecture cannot have.
    """
    settings = read_settings(Settings, spec, entry)
    check_heads(entry, settings.width, settings.heads)
    patch, classes = settings.patch, settings.classes
    size = fitting_size(spec, entry, settings.image_size, least=patch, multiple=patch)
    attention = check_attention(spec.attention)
    plain = Workload(
        model=lambda: VisionTransformer(settings, size, attention),
        batch=image_batches((CHANNELS, size, size), classes, spec.seed),
        loss=classification_loss,
        uses_image_size=True,
        uses_attention=True,
        checkpoint_blocks=lambda model: list(cast(VisionTransformer, model).blocks),
    )
    return _distilled(plain, classes, spec.seed) if settings.distilled else plain
