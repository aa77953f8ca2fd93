"""What the vision families share: the size of an image, and the loss of a classifier."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.data import Images
from bsprof.workloads.catalogue.entries import Entry

CHANNELS = 3  # red, green, blue


def fitting_size(
    spec: WorkloadSpec, entry: Entry, own: int, *, least: int, multiple: int = 1
) -> int:
    """Pixels per side: `--image-size`, else the entry's own.

    Args:
        spec: What was asked for.
        entry: The entry of the catalogue.
        own: Its setting `image_size`.
        least: The smallest size that the architecture takes.
        multiple: What the size must be a multiple of.

    Raises:
        UsageError: the architecture cannot take images of that size.
    """
    size = own if spec.image_size is None else spec.image_size
    if size < least or size % multiple:
        rule = f"a multiple of {multiple}, " if multiple > 1 else ""
        raise UsageError(
            f"{entry.name} cannot take images of {size} x {size}",
            next_step=f"use --image-size with {rule}at least {least}",
        )
    return size


def classification_loss(model: nn.Module, batch: Images) -> Tensor:
    """Mean cross entropy of logits (b, classes) and class indices (b,)."""
    images, labels = batch
    return F.cross_entropy(model(images), labels)
