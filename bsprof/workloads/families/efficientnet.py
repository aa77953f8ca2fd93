"""EfficientNet: inverted bottlenecks with squeeze and excitation, scaled in depth and width.

Tan and Le 2019, arXiv 1905.11946. Convolutions are padded alike on all sides, where the original
in TensorFlow pads one side more at stride 2; counts and FLOPs are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.data import image_batches
from bsprof.workloads.catalogue.entries import Entry
from bsprof.workloads.families.settings import read_settings
from bsprof.workloads.families.stochastic_depth import StochasticDepth
from bsprof.workloads.families.vision import CHANNELS, classification_loss, fitting_size
from bsprof.workloads.workload import Workload

SQUEEZE = 4  # channels of a block's input over those of its squeeze
STRIDE = 32  # of the whole network


@dataclass(frozen=True, slots=True)
class StageShape:
    """What all blocks of a stage have in common, in every size of the network."""

    expansion: int
    kernel: int
    stride: int


STAGES = (
    StageShape(1, 3, 1),
    StageShape(6, 3, 2),
    StageShape(6, 5, 2),
    StageShape(6, 3, 2),
    StageShape(6, 5, 1),
    StageShape(6, 5, 2),
    StageShape(6, 3, 1),
)
"""Table 1 of the paper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the family.

    Attributes:
        depths: Blocks of each stage.
        widths: Channels of the stem, of each stage, and of the last convolution.
        dropout: Share of the features dropped before the head.
        stochastic_depth: Rate at which blocks are dropped: 0 at the first, rising with each by
            this over the number of blocks.
        norm_eps: What every BatchNorm adds to the variance.
        norm_momentum: Share of the newest batch in every BatchNorm's running statistics.
        image_size: Pixels per side.
        classes: Classes that are told apart.
    """

    depths: tuple[int, ...]
    widths: tuple[int, ...]
    dropout: float
    stochastic_depth: float
    norm_eps: float
    norm_momentum: float
    image_size: int
    classes: int


@dataclass(frozen=True, slots=True)
class Norm:
    """How every BatchNorm of the network is built."""

    eps: float
    momentum: float

    def build(self, channels: int) -> nn.Module:
        """A BatchNorm of so many channels."""
        return nn.BatchNorm2d(channels, eps=self.eps, momentum=self.momentum)


class SqueezeExcitation(nn.Module):
    """Scales every channel by a share computed from the means of all, (b, c, h, w) to the same.

    Hu et al. 2018, arXiv 1709.01507.
    """

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.excite = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The input, channel by channel."""
        means = x.mean(dim=(2, 3), keepdim=True)
        shares = self.excite(nn.functional.silu(self.squeeze(means))).sigmoid()
        y: Tensor = x * shares
        return y


class Block(nn.Module):
    """An inverted bottleneck, (b, c, h, w) to (b, channels_out, h/stride, w/stride).

    Args:
        channels_in: Channels of the input.
        channels_out: Channels of the output.
        shape: Kernel and expansion.
        stride: 2 halves the image.
        norm: How BatchNorms are built.
        stochastic_depth: Rate at which the branch is dropped; only where there is a way around.
    """

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        shape: StageShape,
        *,
        stride: int,
        norm: Norm,
        stochastic_depth: float,
    ) -> None:
        super().__init__()
        inner = channels_in * shape.expansion
        expand = _conv(channels_in, inner, norm) if shape.expansion > 1 else nn.Identity()
        self.branch = nn.Sequential(
            expand,
            _conv(inner, inner, norm, kernel=shape.kernel, stride=stride, groups=inner),
            SqueezeExcitation(inner, max(1, channels_in // SQUEEZE)),
            nn.Conv2d(inner, channels_out, 1, bias=False),
            norm.build(channels_out),
        )
        self.has_way_around = stride == 1 and channels_in == channels_out
        self.stochastic_depth = StochasticDepth(stochastic_depth)

    def forward(self, x: Tensor) -> Tensor:
        """The branch, and the input where it has the same shape."""
        y: Tensor = self.branch(x)
        return x + self.stochastic_depth(y) if self.has_way_around else y


class EfficientNet(nn.Module):
    """Images (b, 3, size, size) to logits (b, classes)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        norm = Norm(settings.norm_eps, settings.norm_momentum)
        stem, *_, narrow, wide = settings.widths
        self.stem = _conv(CHANNELS, stem, norm, kernel=3, stride=2)
        self.blocks = nn.ModuleList(_blocks(settings, norm))
        self.last = _conv(narrow, wide, norm)
        self.dropout = nn.Dropout(settings.dropout)
        self.head = nn.Linear(wide, settings.classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the classes, from the mean over the last feature map."""
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.dropout(self.last(x).mean(dim=(2, 3))))
        return logits


def _conv(
    channels_in: int,
    channels_out: int,
    norm: Norm,
    *,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
) -> nn.Module:
    """Convolution, BatchNorm, SiLU."""
    return nn.Sequential(
        nn.Conv2d(
            channels_in,
            channels_out,
            kernel,
            stride,
            padding=kernel // 2,
            groups=groups,
            bias=False,
        ),
        norm.build(channels_out),
        nn.SiLU(),
    )


def _blocks(settings: Settings, norm: Norm) -> Iterator[nn.Module]:
    """The blocks of all stages, in order."""
    channels, *widths, _ = settings.widths
    rise, done = settings.stochastic_depth / sum(settings.depths), 0
    for shape, width, depth in zip(STAGES, widths, settings.depths, strict=True):
        for number in range(depth):
            yield Block(
                channels,
                width,
                shape,
                stride=shape.stride if number == 0 else 1,
                norm=norm,
                stochastic_depth=rise * done,
            )
            channels, done = width, done + 1


def _check(entry: Entry, settings: Settings) -> None:
    needed = len(STAGES) + 2
    if len(settings.widths) != needed:
        raise UsageError(
            f"{entry.name} needs {needed} numbers for the setting widths",
            found=",".join(map(str, settings.widths)),
            next_step="give those of the stem, of each stage and of the last convolution",
        )


def workload(spec: WorkloadSpec, entry: Entry) -> Workload:
    """Image classification with an entry of this family.

    In images of 32 x 32 one pixel is left at the end, and BatchNorm cannot train on one sample.

    Raises:
        UsageError: a setting or an image size that the architecture cannot have.
    """
    settings = read_settings(Settings, spec, entry)
    _check(entry, settings)
    size = fitting_size(spec, entry, settings.image_size, least=STRIDE)
    return Workload(
        model=lambda: EfficientNet(settings),
        batch=image_batches((CHANNELS, size, size), settings.classes, spec.seed),
        loss=classification_loss,
        uses_image_size=True,
        checkpoint_blocks=lambda model: list(cast(EfficientNet, model).blocks),
    )
