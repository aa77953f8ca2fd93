"""Optical flow of torchvision: RAFT with the loss over its sequence of estimates."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bsprof.records import WorkloadSpec
from bsprof.workloads.sources.torchvision_builder import Builder
from bsprof.workloads.workload import Workload

HEIGHT, WIDTH = 368, 496
DECAY = 0.8
"""Crop of the first stage of training (chairs) and weight of an estimate against the next one
(gamma): torchvision's `references/optical_flow`, after Teed and Deng 2020, arXiv 2003.12039."""
LARGEST_FLOW = 8.0  # pixels; the size of the numbers changes nothing about the time

Pair = tuple[Tensor, Tensor, Tensor]


def workload(builder: Builder, spec: WorkloadSpec) -> Workload:
    """Two images (b, 3, height, width) each and the flow between them, (b, 2, height, width).

    368 x 496 pixels, or `--image-size` on both sides (a multiple of 8, 128 at the least).
    """
    height, width = (HEIGHT, WIDTH) if spec.image_size is None else (spec.image_size,) * 2
    return Workload(
        model=builder.build,
        batch=pair_batches(height, width, spec.seed),
        loss=loss,
        uses_image_size=True,
    )


def pair_batches(height: int, width: int, seed: int) -> Callable[[int, torch.device], Pair]:
    """A batch function: two images in [-1, 1] and a flow of some pixels."""
    generator = torch.Generator().manual_seed(seed)

    def batch(micro_batch_size: int, device: torch.device) -> Pair:
        images = torch.rand(2, micro_batch_size, 3, height, width, generator=generator) * 2 - 1
        flow = torch.rand(micro_batch_size, 2, height, width, generator=generator) * 2 - 1
        first, second = images.to(device)
        return first, second, flow.to(device) * LARGEST_FLOW

    return batch


def loss(model: nn.Module, batch: Pair) -> Tensor:
    """Mean distance of every estimate from the flow, later ones weighing more."""
    first, second, flow = batch
    estimates = model(first, second)
    total = flow.new_zeros(())
    for age, estimate in enumerate(reversed(estimates)):
        total = total + DECAY**age * (estimate - flow).abs().mean()
    return total
