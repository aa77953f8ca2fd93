"""`convnet`: a small residual network with BatchNorm (after He et al. 2016, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.data import Images, image_batches
from bsprof.workloads.workload import Workload

IMAGE_SIZE = 32
WIDTHS = (32, 64, 128)
CLASSES = 10
SMALLEST_IMAGE = 4  # two blocks halve the image


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions and a way around them, (b, c, h, w) to (b, c', h/s, w/s)."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.around = nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
            nn.BatchNorm2d(channels_out),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both ways, rectified."""
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y)) + self.around(x)
        return F.relu(y)


class ConvNet(nn.Module):
    """Images (b, 3, size, size) to logits (b, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False), nn.BatchNorm2d(WIDTHS[0]), nn.ReLU()
        )
        self.blocks = nn.ModuleList(
            ResidualBlock(narrow, wide, stride=1 if narrow == wide else 2)
            for narrow, wide in zip((WIDTHS[0], *WIDTHS), WIDTHS, strict=False)
        )
        self.head = nn.Linear(WIDTHS[-1], CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the classes."""
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x.mean(dim=(2, 3)))
        return logits


def loss(model: nn.Module, batch: Images) -> Tensor:
    """Mean cross entropy."""
    images, labels = batch
    return F.cross_entropy(model(images), labels)


def workload(spec: WorkloadSpec) -> Workload:
    """The workload of `--model convnet`.

    Raises:
        UsageError: an image size too small to be halved twice.
    """
    size = IMAGE_SIZE if spec.image_size is None else spec.image_size
    if size < SMALLEST_IMAGE:
        raise UsageError(f"--image-size {size} is below convnet's least, {SMALLEST_IMAGE}")
    return Workload(
        model=ConvNet,
        batch=image_batches((3, size, size), CLASSES, spec.seed),
        loss=loss,
        uses_image_size=True,
        checkpoint_blocks=lambda model: cast(Sequence[nn.Module], cast(ConvNet, model).blocks),
    )
