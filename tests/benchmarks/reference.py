"""Workloads that the benchmarks compare on; also a user's file for `--model reference.py:NAME`."""

import time

import torch
from torch import nn

from bsprof import Workload
from bsprof.records import WorkloadSpec
from bsprof.workloads.resolve import resolve

SLOW_FROM = 28


def gpt() -> Workload:
    """The reference: GPT-2 architecture, 4 layers, width 256, vocabulary 1000, sequence 128."""
    return resolve(WorkloadSpec(model="gpt-tiny"))


def convnet() -> Workload:
    """Deep and narrow, small images: a fixed cost a step, so throughput rises far."""
    return Workload(
        model=NarrowNet,
        batch=lambda size, device: (
            torch.randn(size, 3, 16, 16, device=device),
            torch.randint(10, (size,), device=device),
        ),
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
    )


class NarrowBlock(nn.Module):
    """Two convolutions with batch norm and a shortcut, (b, 16, 16, 16) to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.layers(x))


class NarrowNet(nn.Module):
    """48 convolutions of 16 channels; images (b, 3, 16, 16) to 10 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.ModuleList(NarrowBlock() for _ in range(24))
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


def slowed() -> Workload:
    """A model with a fixed cost a step, and a planted slow-down well before its memory limit."""

    class Slowed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(512, 2048),
                nn.GELU(),
                nn.Linear(2048, 2048),
                nn.GELU(),
                nn.Linear(2048, 512),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            started = time.perf_counter()
            y = self.layers(x)
            if x.shape[0] >= SLOW_FROM:  # as when a kernel falls back, or memory spills
                time.sleep(0.8 * (time.perf_counter() - started) + 0.05)
            return y

    return Workload(
        model=Slowed,
        batch=lambda size, device: torch.randn(size, 64, 512, device=device),
        loss=lambda model, batch: model(batch).square().mean(),
    )
