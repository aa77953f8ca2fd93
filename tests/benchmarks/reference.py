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
    """Batch norm and convolutions on small images: throughput peaks at small sizes on a CPU."""
    return resolve(WorkloadSpec(model="convnet"))


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
