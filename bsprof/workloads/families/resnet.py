"""ResNet and its kin: residual networks with BatchNorm for image classification.

He et al. 2016, arXiv 1512.03385, with the stride of a bottleneck on its 3 x 3 convolution
("v1.5", as torchvision has it); ResNeXt (Xie et al. 2017, arXiv 1611.05431) and Wide ResNet
(Zagoruyko and Komodakis 2016, arXiv 1605.07146) differ in groups and width only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.data import image_batches
from bsprof.workloads.catalogue.entries import Entry
from bsprof.workloads.families.settings import read_settings
from bsprof.workloads.families.vision import CHANNELS, classification_loss, fitting_size
from bsprof.workloads.workload import Workload

STEM_WIDTH = 64
EXPANSION = 4  # of a bottleneck's output over its width
STEM_STRIDE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the family.

    Attributes:
        depths: Residual blocks of each stage.
        bottleneck: Whether blocks are bottlenecks, not pairs of 3 x 3 convolutions.
        groups: Groups of a bottleneck's 3 x 3 convolution.
        width_per_group: Channels of a group in the first stage.
        image_size: Pixels per side.
        classes: Classes that are told apart.
    """

    depths: tuple[int, ...]
    bottleneck: bool
    groups: int
    width_per_group: int
    image_size: int
    classes: int

    @property
    def widths(self) -> list[int]:
        """Channels of each stage, before a bottleneck expands them."""
        return [STEM_WIDTH * 2**stage for stage in range(len(self.depths))]

    @property
    def expansion(self) -> int:
        """Channels of a block's output over its width."""
        return EXPANSION if self.bottleneck else 1


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a way around, (b, c, h, w) to (b, width, h/stride, w/stride)."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.around = _way_around(channels_in, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both ways, rectified."""
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += self.around(x)
        return F.relu(y, inplace=True)


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions and a way around.

    (b, c, h, w) to (b, channels_out, h/stride, w/stride).
    """

    def __init__(
        self, channels_in: int, width: int, channels_out: int, stride: int, groups: int
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, groups=groups, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, channels_out, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(channels_out)
        self.around = _way_around(channels_in, channels_out, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both ways, rectified."""
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = F.relu(self.norm2(self.conv2(y)), inplace=True)
        y = self.norm3(self.conv3(y))
        y += self.around(x)
        return F.relu(y, inplace=True)


class ResNet(nn.Module):
    """Images (b, 3, size, size) to logits (b, classes)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(CHANNELS, STEM_WIDTH, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(STEM_WIDTH),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.blocks = nn.ModuleList(_blocks(settings))
        self.head = nn.Linear(settings.widths[-1] * settings.expansion, settings.classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the classes, from the mean over the last feature map."""
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x.mean(dim=(2, 3)))
        return logits


def _way_around(channels_in: int, channels_out: int, stride: int) -> nn.Module:
    """The input itself, or a projection of it where its shape changes."""
    if stride == 1 and channels_in == channels_out:
        return nn.Identity()
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 1, stride, bias=False), nn.BatchNorm2d(channels_out)
    )


def _blocks(settings: Settings) -> Iterator[nn.Module]:
    """The residual blocks of all stages, in order; each stage but the first halves the image."""
    channels = STEM_WIDTH
    for stage, (depth, width) in enumerate(zip(settings.depths, settings.widths, strict=True)):
        for number in range(depth):
            stride = 2 if stage > 0 and number == 0 else 1
            channels_out = width * settings.expansion
            if settings.bottleneck:
                inner = width * settings.width_per_group // STEM_WIDTH * settings.groups
                yield Bottleneck(channels, inner, channels_out, stride, settings.groups)
            else:
                yield BasicBlock(channels, width, stride)
            channels = channels_out


def _check(entry: Entry, settings: Settings) -> None:
    plain = (settings.groups, settings.width_per_group) == (1, STEM_WIDTH)
    if not settings.bottleneck and not plain:
        raise UsageError(
            f"groups and width_per_group have no effect on {entry.name}",
            found="blocks of two 3 x 3 convolutions",
            next_step="leave them out, or add --model-option bottleneck=true",
        )


def workload(spec: WorkloadSpec, entry: Entry) -> Workload:
    """Image classification with an entry of this family.

    In images of 32 x 32 one pixel is left at the end, and BatchNorm cannot train on one sample.

    Raises:
        UsageError: a setting or an image size that the architecture cannot have.
    """
    settings = read_settings(Settings, spec, entry)
    _check(entry, settings)
    stride = STEM_STRIDE * 2 ** (len(settings.depths) - 1)
    size = fitting_size(spec, entry, settings.image_size, least=stride)
    return Workload(
        model=lambda: ResNet(settings),
        batch=image_batches((CHANNELS, size, size), settings.classes, spec.seed),
        loss=classification_loss,
        uses_image_size=True,
        checkpoint_blocks=lambda model: list(cast(ResNet, model).blocks),
    )
