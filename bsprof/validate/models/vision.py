"""Small vision workloads of a GPU benchmark: a LeNet, ResNet-50 for 32 x 32 images, a ViT, a DDPM.

Shapes and the order of operators follow the source's public models; SGD and the loop are in the
row's settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.workloads.workload import Workload

Images = tuple[Tensor, Tensor]
CLASSES = 10
STEPS = 1000
"""Of the diffusion's noise schedule."""


class LeNet(nn.Module):
    """Two convolutions of 5 x 5 with pooling, three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.a, self.b, self.c = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(b, 3, 32, 32) to (b, classes)."""
        for conv in (self.first, self.second):
            x = F.max_pool2d(torch.relu(conv(x)), 2, 2)
        x = x.reshape(-1, 400)
        out: Tensor = self.c(torch.relu(self.b(torch.relu(self.a(x)))))
        return out


class Bottleneck(nn.Module):
    """ResNet's, with the stride in the middle and ReLU in place."""

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * inner
        self.convs = nn.ModuleList(
            [
                nn.Conv2d(inputs, inner, 1, bias=False),
                nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False),
                nn.Conv2d(inner, outputs, 1, bias=False),
            ]
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(n) for n in (inner, inner, outputs)])
        self.short: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """One block."""
        y = x
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            y = norm(conv(y))
            if number < 2:
                y = F.relu(y, inplace=True)
        y += x if self.short is None else self.short(x)
        return F.relu(y, inplace=True)


class SmallResNet(nn.Module):
    """ResNet-50 whose first convolution keeps the size of the image, without pooling after it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(64)
        blocks: list[nn.Module] = []
        width = 64
        for inner, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for number in range(count):
                blocks.append(Bottleneck(width, inner, stride if number == 0 else 1))
                width = 4 * inner
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(b, 3, 32, 32) to (b, classes)."""
        x = F.relu(self.norm(self.stem(x)), inplace=True)
        x = F.adaptive_avg_pool2d(self.blocks(x), 1)
        out: Tensor = self.head(torch.flatten(x, 1))
        return out


class VitBlock(nn.Module):
    """Attention of `nn.MultiheadAttention` and a feed-forward half, norms before them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(b, n, width) to (b, n, width)."""
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        y: Tensor = x + self.feed(self.norm2(x))
        return y


class Vit(nn.Module):
    """ViT-B/16 with a class token."""

    def __init__(self, width: int = 768, depth: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, 197, width))
        self.blocks = nn.Sequential(*[VitBlock(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(b, 3, 224, 224) to (b, classes)."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.norm(self.blocks(x + self.places))
        out: Tensor = self.head(x[:, 0])
        return out


def _activated(inputs: int, outputs: int) -> nn.Sequential:
    """Group norm, SiLU, convolution of 3 x 3 without bias."""
    return nn.Sequential(
        nn.GroupNorm(8, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    )


class Residual(nn.Module):
    """Two activated convolutions, the time added between them, and a short cut."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.first, self.second = _activated(inputs, outputs), _activated(outputs, outputs)
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, outputs))
        self.short = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """(b, inputs, h, w) to (b, outputs, h, w)."""
        h = self.first(x)
        h = h + self.time(time)[..., None, None]
        y: Tensor = self.second(h) + self.short(x)
        return y


class Attend(nn.Module):
    """Self-attention over the pixels, added to the input."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """(b, width, h, w) to the same."""
        b, c, height, width = x.shape
        h = self.norm(x).reshape(b, c, height * width).transpose(1, 2)
        h = self.attention(h, h, h, need_weights=False)[0]
        y: Tensor = x + h.transpose(1, 2).reshape(b, c, height, width)
        return y


class DiffusionUNet(nn.Module):
    """Four levels of two residual blocks each way; attention at 16 x 16 and in the middle."""

    def __init__(self, widths: tuple[int, ...] = (128, 256, 384, 512), time: int = 512) -> None:
        super().__init__()
        self.base = widths[0]
        self.time = nn.Sequential(nn.Linear(self.base, time), nn.SiLU(), nn.Linear(time, time))
        self.into = nn.Conv2d(3, widths[0], 3, padding=1)
        self.down, self.down_attend, self.shrink = (nn.ModuleList() for _ in range(3))
        width, side = widths[0], 64
        for level, wide in enumerate(widths):
            self.down.extend([Residual(width, wide, time), Residual(wide, wide, time)])
            self.down_attend.append(Attend(wide) if side == 16 else nn.Identity())
            if level < len(widths) - 1:
                self.shrink.append(nn.Conv2d(wide, wide, 3, stride=2, padding=1))
                side //= 2
            width = wide
        self.middle = nn.ModuleList([Residual(width, width, time) for _ in range(2)])
        self.middle_attend = Attend(width)
        self.up, self.up_attend, self.grow = (nn.ModuleList() for _ in range(3))
        for level in reversed(range(len(widths))):
            wide = widths[level]
            if level < len(widths) - 1:
                self.grow.append(
                    nn.Sequential(
                        nn.Upsample(scale_factor=2), nn.Conv2d(width, width, 3, padding=1)
                    )
                )
                side *= 2
            self.up.extend([Residual(width + wide, wide, time), Residual(wide, wide, time)])
            self.up_attend.append(Attend(wide) if side == 16 else nn.Identity())
            width = wide
        self.out = nn.Sequential(
            nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1)
        )

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Images (b, 3, 64, 64) and times (b,) to noise."""
        half = self.base // 2
        rates = torch.exp(torch.arange(half, device=t.device) * -(math.log(1e4) / (half - 1)))
        angles = t.float().unsqueeze(1) * rates.unsqueeze(0)
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        h = self.into(x)
        skips = []
        for level, attend in enumerate(self.down_attend):
            for block in self.down[2 * level : 2 * level + 2]:
                h = block(h, time)
            h = attend(h)
            skips.append(h)
            if level < len(self.shrink):
                h = self.shrink[level](h)
        h = self.middle[1](self.middle_attend(self.middle[0](h, time)), time)
        for level, attend in enumerate(self.up_attend):
            if level:
                h = self.grow[level - 1](h)
            h = torch.cat([h, skips[-1 - level]], dim=1)
            for block in self.up[2 * level : 2 * level + 2]:
                h = block(h, time)
            h = attend(h)
        out: Tensor = self.out(h)
        return out


MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "simple-cnn-cifar": (LeNet, 32),
    "resnet50-cifar-stem": (SmallResNet, 32),
    "vit-b-16": (Vit, 224),
    "ddpm-unet-64": (DiffusionUNet, 64),
}
"""The model, and the side of its images."""


def workload(name: str) -> Workload:
    """The workload of one of `MODELS`."""
    model, side = MODELS[name]

    def batch(size: int, device: torch.device) -> Images:
        images = torch.randn(size, 3, side, side, device=device)
        return images, torch.randint(CLASSES, (size,), device=device)

    def classified(model: nn.Module, batch: Images) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    def denoised(model: nn.Module, batch: Images) -> Tensor:
        images, labels = batch
        t = torch.randint(STEPS, labels.shape, device=images.device)
        noise = torch.randn_like(images)
        kept = (1.0 - t.float() / STEPS).view(-1, 1, 1, 1)
        noisy = torch.sqrt(kept) * images + torch.sqrt(1.0 - kept) * noise
        return F.mse_loss(model(noisy, t), noise)

    return Workload(
        model=model, batch=batch, loss=denoised if name.startswith("ddpm") else classified
    )
