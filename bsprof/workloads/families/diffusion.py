"""The U-Net of a diffusion model: it predicts the noise that was mixed into an image.

Ho et al. 2020, arXiv 2006.11239 (DDPM). The convolutions that halve an image are padded alike on
all sides, where the original pads one side; query, key and value share one projection. Counts and
FLOPs are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.attention import SelfAttention, check_attention
from bsprof.workloads.catalogue.entries import Entry
from bsprof.workloads.families.settings import read_settings
from bsprof.workloads.families.vision import CHANNELS, fitting_size
from bsprof.workloads.workload import Workload

GROUPS = 32  # of every GroupNorm
NORM_EPS = 1e-6
TIME_EXPANSION = 4
LONGEST_PERIOD = 10_000  # of the sines that stand for a timestep
FIRST_BETA, LAST_BETA = 1e-4, 0.02  # section 4 of the paper

Noised = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the family.

    Attributes:
        width: Channels of the first convolution.
        multipliers: Channels at each size of the image over `width`, the largest image first.
        blocks: Residual blocks at each size on the way down; one more on the way up.
        attention_at: Sizes of the image at which blocks end with attention.
        dropout: Share dropped in a block.
        timesteps: Length of the noise schedule.
        image_size: Pixels per side.
    """

    width: int
    multipliers: tuple[int, ...]
    blocks: int
    attention_at: tuple[int, ...]
    dropout: float
    timesteps: int
    image_size: int


class PixelAttention(nn.Module):
    """Every pixel attends to all of its image, (b, width, h, w) to (b, width, h, w); one head."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, width, eps=NORM_EPS)
        self.attention = SelfAttention(width, 1, causal=False, dropout=0.0, kind=kind)

    def forward(self, x: Tensor) -> Tensor:
        """The input and what the attention adds to it."""
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        y = self.attention(pixels).transpose(1, 2).reshape(x.shape)
        out: Tensor = x + y
        return out


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions that know the time, a way around, and perhaps attention.

    (b, channels_in, h, w) and time (b, time_width) to (b, channels_out, h, w).

    Args:
        channels_in: Channels of the input.
        channels_out: Channels of the output.
        time_width: Features of the time.
        dropout: Share dropped before the second convolution.
        attention: `sdpa` or `eager` for attention at the end, None for none.
    """

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        time_width: int,
        *,
        dropout: float,
        attention: str | None,
    ) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(GROUPS, channels_in, eps=NORM_EPS)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.time = nn.Linear(time_width, channels_out)
        self.norm2 = nn.GroupNorm(GROUPS, channels_out, eps=NORM_EPS)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1)
        alike = channels_in == channels_out
        self.around = nn.Identity() if alike else nn.Conv2d(channels_in, channels_out, 1)
        self.attention = (
            nn.Identity() if attention is None else PixelAttention(channels_out, attention)
        )

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Features of the input at that time."""
        y = self.conv1(F.silu(self.norm1(x)))
        y = y + self.time(F.silu(time))[:, :, None, None]
        y = self.conv2(self.dropout(F.silu(self.norm2(y))))
        out: Tensor = self.attention(self.around(x) + y)
        return out


class DownLevel(nn.Module):
    """Blocks of one size of the image on the way down, and what halves it, if anything does."""

    def __init__(self, blocks: list[ResidualBlock], halved: nn.Module | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.halved = halved

    def forward(self, x: Tensor, time: Tensor) -> list[Tensor]:
        """Everything that the way up will see again, in order; the last goes on down."""
        made = []
        for block in self.blocks:
            x = block(x, time)
            made.append(x)
        if self.halved is not None:
            made.append(self.halved(x))
        return made


class UpLevel(nn.Module):
    """Blocks of one size of the image on the way up, and what doubles it, if anything does."""

    def __init__(self, blocks: list[ResidualBlock], doubled: nn.Module | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.doubled = doubled

    def forward(self, x: Tensor, seen: list[Tensor], time: Tensor) -> Tensor:
        """Each block also takes what was seen last on the way down, and it is taken away there."""
        for block in self.blocks:
            x = block(torch.cat([x, seen.pop()], dim=1), time)
        return x if self.doubled is None else self.doubled(x)


class DiffusionUNet(nn.Module):
    """Noisy images (b, 3, size, size) and timesteps (b,) to the noise (b, 3, size, size)."""

    def __init__(self, settings: Settings, size: int, attention: str) -> None:
        super().__init__()
        self.width = width = settings.width
        time_width = TIME_EXPANSION * width
        self.time = nn.Sequential(
            nn.Linear(width, time_width), nn.SiLU(), nn.Linear(time_width, time_width)
        )
        self.stem = nn.Conv2d(CHANNELS, width, 3, padding=1)
        plan = _Plan(settings, size, attention)
        self.down = nn.ModuleList(plan.down_levels())
        lowest = plan.widths[-1]
        self.middle = nn.ModuleList(
            [plan.block(lowest, lowest, attention), plan.block(lowest, lowest, None)]
        )
        self.up = nn.ModuleList(plan.up_levels())
        self.norm = nn.GroupNorm(GROUPS, width, eps=NORM_EPS)
        self.head = nn.Conv2d(width, CHANNELS, 3, padding=1)

    def forward(self, images: Tensor, timesteps: Tensor) -> Tensor:
        """The noise in the images."""
        features = timestep_features(timesteps, self.width)
        time = self.time(features.to(self.stem.weight.dtype))
        x = self.stem(images)
        seen = [x]
        for level in self.down:
            seen += level(seen[-1], time)
        x = seen[-1]
        for block in self.middle:
            x = block(x, time)
        for level in self.up:
            x = level(x, seen, time)
        noise: Tensor = self.head(F.silu(self.norm(x)))
        return noise


class _Plan:
    """Which blocks a network has, level by level; counts channels and holds no tensors."""

    def __init__(self, settings: Settings, size: int, attention: str) -> None:
        self._first = settings.width
        self._blocks = settings.blocks
        self._dropout = settings.dropout
        self.widths = [self._first * multiplier for multiplier in settings.multipliers]
        sizes = [size // 2**level for level in range(len(self.widths))]
        self._kinds = [attention if s in settings.attention_at else None for s in sizes]

    def block(self, channels_in: int, channels_out: int, attention: str | None) -> ResidualBlock:
        """A residual block."""
        return ResidualBlock(
            channels_in,
            channels_out,
            TIME_EXPANSION * self._first,
            dropout=self._dropout,
            attention=attention,
        )

    def down_levels(self) -> list[DownLevel]:
        """The way down, the largest image first."""
        levels, channels = [], self._first
        for number, width in enumerate(self.widths):
            inputs = [channels] + [width] * (self._blocks - 1)
            blocks = [self.block(n, width, self._kinds[number]) for n in inputs]
            last = number == len(self.widths) - 1
            halved = None if last else nn.Conv2d(width, width, 3, stride=2, padding=1)
            levels.append(DownLevel(blocks, halved))
            channels = width
        return levels

    def up_levels(self) -> list[UpLevel]:
        """The way up, the smallest image first; one block more a level than on the way down."""
        seen = self._seen_channels()
        levels, channels = [], self.widths[-1]
        for number, width in reversed(list(enumerate(self.widths))):
            blocks = []
            for _ in range(self._blocks + 1):
                blocks.append(self.block(channels + seen.pop(), width, self._kinds[number]))
                channels = width
            levels.append(UpLevel(blocks, _doubled(width) if number else None))
        return levels

    def _seen_channels(self) -> list[int]:
        """Channels of everything that the way up sees again, in the order it was made."""
        seen = [self._first]
        for number, width in enumerate(self.widths):
            last = number == len(self.widths) - 1
            seen += [width] * (self._blocks if last else self._blocks + 1)
        return seen


def _doubled(width: int) -> nn.Module:
    """Twice as high and twice as wide."""
    return nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(width, width, 3, padding=1))


def timestep_features(timesteps: Tensor, width: int) -> Tensor:
    """Sines and cosines of the timesteps (b,), as (b, width) in fp32.

    Vaswani et al. 2017, arXiv 1706.03762, section 3.5: periods from 2 pi to 10000 times that,
    in a geometric series.
    """
    half = width // 2
    steps = torch.arange(half, device=timesteps.device, dtype=torch.float32)
    frequencies = torch.exp(steps * (-math.log(LONGEST_PERIOD) / max(half - 1, 1)))
    angles = timesteps.float()[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def noise_loss(model: nn.Module, batch: Noised) -> Tensor:
    """Mean squared error of the noise (equation 14 of the paper)."""
    images, noise, timesteps, kept = batch
    kept = kept[:, None, None, None]
    noisy = kept.sqrt() * images + (1 - kept).sqrt() * noise
    return F.mse_loss(model(noisy, timesteps), noise)


def noised_batches(size: int, timesteps: int, seed: int) -> Callable[[int, torch.device], Noised]:
    """A batch function: images and noise (b, 3, size, size), timesteps (b,), what is kept (b,).

    What is kept of an image at its timestep is the product of 1 - beta over the timesteps so far.
    Noise and timesteps are in the batch, not drawn in the loss, so that the loss of a batch is one
    number however it is split.
    """
    generator = torch.Generator().manual_seed(seed)
    betas = torch.linspace(FIRST_BETA, LAST_BETA, timesteps)
    kept = torch.cumprod(1 - betas, dim=0)

    def batch(micro_batch_size: int, device: torch.device) -> Noised:
        shape = (micro_batch_size, CHANNELS, size, size)
        images = torch.randn(shape, generator=generator)
        noise = torch.randn(shape, generator=generator)
        drawn = torch.randint(timesteps, (micro_batch_size,), generator=generator)
        return images.to(device), noise.to(device), drawn.to(device), kept[drawn].to(device)

    return batch


def _check(entry: Entry, settings: Settings) -> None:
    if settings.width % GROUPS:
        raise UsageError(
            f"the setting width of {entry.name} cannot be {settings.width}",
            next_step=f"give a multiple of {GROUPS}, the groups of its GroupNorms",
        )


def _blocks_in_order(model: nn.Module) -> list[nn.Module]:
    net = cast(DiffusionUNet, model)
    down = [block for level in net.down for block in cast(DownLevel, level).blocks]
    up = [block for level in net.up for block in cast(UpLevel, level).blocks]
    return [*down, *net.middle, *up]


def workload(spec: WorkloadSpec, entry: Entry) -> Workload:
    """Noise prediction with an entry of this family.

    Attention stands where the image has one of the sizes of the setting `attention_at`, and in
    the middle.

    Raises:
        UsageError: a setting or an image size that the architecture cannot have.
    """
    settings = read_settings(Settings, spec, entry)
    _check(entry, settings)
    smallest = 2 ** (len(settings.multipliers) - 1)
    size = fitting_size(spec, entry, settings.image_size, least=smallest, multiple=smallest)
    attention = check_attention(spec.attention)
    return Workload(
        model=lambda: DiffusionUNet(settings, size, attention),
        batch=noised_batches(size, settings.timesteps, spec.seed),
        loss=noise_loss,
        uses_image_size=True,
        uses_attention=True,
        checkpoint_blocks=_blocks_in_order,
    )
