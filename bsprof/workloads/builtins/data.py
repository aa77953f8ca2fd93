"""Random data for the built-in models: fresh for every batch, the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Images = tuple[Tensor, Tensor]


def image_batches(
    shape: tuple[int, ...], classes: int, seed: int
) -> Callable[[int, torch.device], Images]:
    """A batch function: normal inputs (b, *shape) and class indices (b,)."""
    generator = torch.Generator().manual_seed(seed)

    def batch(micro_batch_size: int, device: torch.device) -> Images:
        inputs = torch.randn(micro_batch_size, *shape, generator=generator)
        labels = torch.randint(classes, (micro_batch_size,), generator=generator)
        return inputs.to(device), labels.to(device)

    return batch
