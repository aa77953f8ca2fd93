"""ConvNeXt: 7 x 7 depthwise convolutions, LayerNorm and two-layer networks on every pixel.

Liu et al. 2022, arXiv 2201.03545.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.data import image_batches
from bsprof.workloads.catalogue.entries import Entry
from bsprof.workloads.families.settings import read_settings
from bsprof.workloads.families.stochastic_depth import StochasticDepth, rising_rates
from bsprof.workloads.families.vision import CHANNELS, classification_loss, fitting_size
from bsprof.workloads.workload import Workload

STEM_STRIDE = 4
NORM_EPS = 1e-6
LAYER_SCALE = 1e-6  # what a block's output is multiplied with at the start of training


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the family.

    Attributes:
        depths: Blocks of each stage.
        widths: Channels of each stage.
        stochastic_depth: Rate at which the last block is dropped.
        image_size: Pixels per side.
        classes: Classes that are told apart.
    """

    depths: tuple[int, ...]
    widths: tuple[int, ...]
    stochastic_depth: float
    image_size: int
    classes: int


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of every pixel, (b, c, h, w) to (b, c, h, w)."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the base class's name
        """Normalise with the channels last, where they lie side by side."""
        x = input.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class Block(nn.Module):
    """A depthwise convolution, then a two-layer network on every pixel, added to the input.

    (b, width, h, w) to (b, width, h, w).
    """

    def __init__(self, width: int, stochastic_depth: float) -> None:
        super().__init__()
        self.layer_scale = nn.Parameter(torch.full((width,), LAYER_SCALE))
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=NORM_EPS)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.stochastic_depth = StochasticDepth(stochastic_depth)

    def forward(self, x: Tensor) -> Tensor:
        """The input and what the block adds to it."""
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.layer_scale * self.mlp(y)
        out: Tensor = x + self.stochastic_depth(y.permute(0, 3, 1, 2))
        return out


class Stage(nn.Module):
    """Blocks of one width behind what makes the image smaller."""

    def __init__(self, smaller: nn.Module, width: int, rates: list[float]) -> None:
        super().__init__()
        self.smaller = smaller
        self.blocks = nn.ModuleList(Block(width, rate) for rate in rates)

    def forward(self, x: Tensor) -> Tensor:
        """(b, c, h, w) to (b, width, h/stride, w/stride)."""
        x = self.smaller(x)
        for block in self.blocks:
            x = block(x)
        return x


class ConvNeXt(nn.Module):
    """Images (b, 3, size, size) to logits (b, classes)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        depths, widths = settings.depths, settings.widths
        rates = rising_rates(settings.stochastic_depth, sum(depths))
        stages, done = [], 0
        for number, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            smaller = _halved(widths[number - 1], width) if number else _stem(width)
            stages.append(Stage(smaller, width, rates[done : done + depth]))
            done += depth
        self.stages = nn.ModuleList(stages)
        self.norm = nn.LayerNorm(widths[-1], eps=NORM_EPS)
        self.head = nn.Linear(widths[-1], settings.classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the classes, from the mean over the last feature map."""
        x = images
        for stage in self.stages:
            x = stage(x)
        logits: Tensor = self.head(self.norm(x.mean(dim=(2, 3))))
        return logits


def _stem(width: int) -> nn.Module:
    """Patches of 4 x 4 pixels, normalised."""
    return nn.Sequential(
        nn.Conv2d(CHANNELS, width, STEM_STRIDE, stride=STEM_STRIDE),
        ChannelNorm(width, eps=NORM_EPS),
    )


def _halved(narrow: int, wide: int) -> nn.Module:
    """Normalised, then half as high and half as wide."""
    return nn.Sequential(ChannelNorm(narrow, eps=NORM_EPS), nn.Conv2d(narrow, wide, 2, stride=2))


def _check(entry: Entry, settings: Settings) -> None:
    widths, depths = len(settings.widths), len(settings.depths)
    if widths != depths:
        raise UsageError(
            f"{entry.name} needs as many widths as depths",
            found=f"{widths} widths, {depths} depths",
            next_step=f"give the setting widths {depths} numbers",
        )


def workload(spec: WorkloadSpec, entry: Entry) -> Workload:
    """Image classification with an entry of this family.

    Raises:
        UsageError: a setting or an image size that the architecture cannot have.
    """
    settings = read_settings(Settings, spec, entry)
    _check(entry, settings)
    stride = STEM_STRIDE * 2 ** (len(settings.depths) - 1)
    size = fitting_size(spec, entry, settings.image_size, least=stride)
    return Workload(
        model=lambda: ConvNeXt(settings),
        batch=image_batches((CHANNELS, size, size), settings.classes, spec.seed),
        loss=classification_loss,
        uses_image_size=True,
        checkpoint_blocks=lambda model: [
            block for stage in cast(ConvNeXt, model).stages for block in cast(Stage, stage).blocks
        ],
    )
