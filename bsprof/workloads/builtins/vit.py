"""`vit-tiny`: a vision transformer, small (Dosovitskiy et al. 2021, arXiv 2010.11929)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.attention import SelfAttention, check_attention
from bsprof.workloads.builtins.data import Images, image_batches
from bsprof.workloads.workload import Workload

LAYERS = 4
WIDTH = 128
HEADS = 4
IMAGE_SIZE = 32
PATCH = 4
CLASSES = 10
INIT_STD = 0.02


class Block(nn.Module):
    """A pre-norm transformer block without dropout, (b, n, width) to (b, n, width)."""

    def __init__(self, attention: str) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = SelfAttention(WIDTH, HEADS, causal=False, dropout=0.0, kind=attention)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Attention, then the two-layer network, each added to its input."""
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class VisionTransformer(nn.Module):
    """Images (b, 3, size, size) to logits (b, 10), from a class token over 4 x 4 patches."""

    def __init__(self, image_size: int, attention: str) -> None:
        super().__init__()
        patches = (image_size // PATCH) ** 2
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, patches + 1, WIDTH) * INIT_STD)
        self.blocks = nn.ModuleList(Block(attention) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the classes."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x[:, 0]))
        return logits


def loss(model: nn.Module, batch: Images) -> Tensor:
    """Mean cross entropy."""
    images, labels = batch
    return F.cross_entropy(model(images), labels)


def workload(spec: WorkloadSpec) -> Workload:
    """The workload of `--model vit-tiny`.

    Raises:
        UsageError: an image size that is no multiple of the patch.
    """
    size = IMAGE_SIZE if spec.image_size is None else spec.image_size
    if size < PATCH or size % PATCH:
        raise UsageError(
            f"--image-size {size} does not fit vit-tiny",
            next_step=f"use a multiple of its patch, {PATCH}",
        )
    attention = check_attention(spec.attention)
    return Workload(
        model=lambda: VisionTransformer(size, attention),
        batch=image_batches((3, size, size), CLASSES, spec.seed),
        loss=loss,
        uses_image_size=True,
        uses_attention=True,
        checkpoint_blocks=lambda model: cast(
            Sequence[nn.Module], cast(VisionTransformer, model).blocks
        ),
    )
