"""U-Net for segmentation: every pixel of an image is given a class.

Ronneberger et al. 2015, arXiv 1505.04597: convolutions without padding and without normalisation,
so that the answer is smaller than the image; and as it is usually built today, padded and with
BatchNorm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.data import Images
from bsprof.workloads.catalogue.entries import Entry
from bsprof.workloads.families.settings import read_settings
from bsprof.workloads.workload import Workload

LOST_PIXELS = 4  # per side, of two 3 x 3 convolutions without padding


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the family.

    Attributes:
        widths: Channels at each size of the image, the largest image first.
        channels: Channels of an image.
        padding: Whether convolutions are padded, so that the answer is as large as the image.
        norm: Whether there is a BatchNorm behind every 3 x 3 convolution, in place of its bias.
        image_size: Pixels per side.
        classes: Classes that are told apart.
    """

    widths: tuple[int, ...]
    channels: int
    padding: bool
    norm: bool
    image_size: int
    classes: int


class DoubleConv(nn.Module):
    """Two rectified 3 x 3 convolutions, (b, c, h, w) to (b, channels_out, h', w').

    h' is h with padding and h - 4 without.
    """

    def __init__(self, channels_in: int, channels_out: int, *, padding: bool, norm: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for channels in (channels_in, channels_out):
            layers.append(nn.Conv2d(channels, channels_out, 3, padding=int(padding), bias=not norm))
            if norm:
                layers.append(nn.BatchNorm2d(channels_out))
            layers.append(nn.ReLU(inplace=True))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Features of the input."""
        y: Tensor = self.layers(x)
        return y


class UNet(nn.Module):
    """Images (b, channels, size, size) to logits (b, classes, size', size')."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        widths, padding, norm = settings.widths, settings.padding, settings.norm
        self.encoder = nn.ModuleList(
            DoubleConv(narrow, wide, padding=padding, norm=norm)
            for narrow, wide in zip((settings.channels, *widths[:-1]), widths, strict=True)
        )
        rising = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.larger = nn.ModuleList(
            nn.ConvTranspose2d(wide, narrow, 2, stride=2) for wide, narrow in rising
        )
        self.decoder = nn.ModuleList(
            DoubleConv(2 * narrow, narrow, padding=padding, norm=norm) for _, narrow in rising
        )
        self.head = nn.Conv2d(widths[0], settings.classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the class of every pixel."""
        x, seen = images, []
        for number, block in enumerate(self.encoder):
            x = block(x if number == 0 else F.max_pool2d(x, 2))
            seen.append(x)
        seen.pop()  # the lowest is where the way up starts
        for larger, block in zip(self.larger, self.decoder, strict=True):
            x = larger(x)
            x = block(torch.cat([_middle(seen.pop(), x.shape[-1]), x], dim=1))
        logits: Tensor = self.head(x)
        return logits


def _middle(x: Tensor, size: int) -> Tensor:
    """The middle of every image: the whole, where nothing was lost at the border."""
    border = (x.shape[-1] - size) // 2
    return x[:, :, border : border + size, border : border + size] if border else x


def output_size(size: int, halvings: int, *, padding: bool) -> int | None:
    """Pixels per side that a U-Net answers for; None where an image of `size` does not fit.

    It fits if every map that is halved is even; without padding some of it must be left, too.
    """
    lost = 0 if padding else LOST_PIXELS
    for _ in range(halvings):
        size -= lost
        if size < 2 or size % 2:
            return None
        size //= 2
    size -= lost
    for _ in range(halvings):
        size = 2 * size - lost
    return size if size > 0 else None


def segmentation_loss(model: nn.Module, batch: Images) -> Tensor:
    """Mean cross entropy over all pixels that the model answers for."""
    images, labels = batch
    return F.cross_entropy(model(images), labels)


def segmentation_batches(
    channels: int, size: int, labelled: int, classes: int, seed: int
) -> Callable[[int, torch.device], Images]:
    """A batch function: normal images (b, channels, size, size), classes (b, labelled, labelled).

    Args:
        channels: Channels of the images.
        size: Their pixels per side.
        labelled: Pixels per side that have a label.
        classes: Number of classes.
        seed: Seeds the data.
    """
    generator = torch.Generator().manual_seed(seed)

    def batch(micro_batch_size: int, device: torch.device) -> Images:
        shape = (micro_batch_size, channels, size, size)
        images = torch.randn(shape, generator=generator)
        labels = torch.randint(classes, (micro_batch_size, labelled, labelled), generator=generator)
        return images.to(device), labels.to(device)

    return batch


def _sizes(spec: WorkloadSpec, entry: Entry, settings: Settings) -> tuple[int, int]:
    """Pixels per side of the image and of the answer.

    Raises:
        UsageError: an image of that size does not fit; sizes near it are named.
    """
    size = settings.image_size if spec.image_size is None else spec.image_size
    halvings, padding = len(settings.widths) - 1, settings.padding
    labelled = output_size(size, halvings, padding=padding)
    if labelled is not None:
        return size, labelled
    near = (size + away for step in range(2**20) for away in (-step, step))
    fitting = next(n for n in near if output_size(n, halvings, padding=padding))
    raise UsageError(
        f"{entry.name} cannot take images of {size} x {size}",
        found=f"its {halvings} halvings need even sizes",
        next_step=f"use --image-size {fitting}, or add multiples of {2**halvings} to that",
    )


def _check(entry: Entry, settings: Settings) -> None:
    if len(settings.widths) < 2:
        raise UsageError(
            f"{entry.name} needs two widths or more",
            next_step="give numbers with commas, like widths=64,128",
        )


def workload(spec: WorkloadSpec, entry: Entry) -> Workload:
    """Segmentation with an entry of this family.

    Raises:
        UsageError: a setting or an image size that the architecture cannot have.
    """
    settings = read_settings(Settings, spec, entry)
    _check(entry, settings)
    size, labelled = _sizes(spec, entry, settings)
    channels, classes = settings.channels, settings.classes
    return Workload(
        model=lambda: UNet(settings),
        batch=segmentation_batches(channels, size, labelled, classes, spec.seed),
        loss=segmentation_loss,
        uses_image_size=True,
        checkpoint_blocks=lambda model: [
            *cast(UNet, model).encoder,
            *cast(UNet, model).decoder,
        ],
    )
