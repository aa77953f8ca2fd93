"""Batches for a LightningModule, with the hooks on their way to the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from bsprof.errors import WorkloadError
from bsprof.workloads.adapters.drawing import Choice
from bsprof.workloads.adapters.lightning_trainer import Trainers, lightning_package, overrides
from bsprof.workloads.adapters.models import made
from bsprof.workloads.adapters.real_batches import open_data
from bsprof.workloads.batches import move, tensors_in


class LightningData:
    """The training loader's samples, and who owns the hooks of a batch.

    Attributes:
        drawing: Makes batches of the samples.

    Args:
        data: A loader, a data module, something with a `train_dataloader`, a data set, or a
            function that returns one of these.
        choice: Which samples make a batch.
        trainers: Gives what a data module is attached to.

    Raises:
        WorkloadError: no loader, or several.
    """

    def __init__(self, data: Any, choice: Choice, trainers: Trainers) -> None:
        data = made(data)
        self._datamodule: Any = None
        package = lightning_package(data, "LightningDataModule")
        if package is not None:
            trainer = trainers.of(package)
            self._datamodule = data
            data.trainer, trainer.datamodule = trainer, data
            data.prepare_data()
            data.setup("fit")
        if hasattr(data, "train_dataloader"):
            data = _single_loader(data)
        self.drawing = open_data(data, choice)

    def batch(self, module: nn.Module | None, size: int, device: torch.device) -> Any:
        """A batch on the device, moved by the user's own hooks where there are any."""
        batch = self.drawing.collated(size)
        batch = self._hook(module, "on_before_batch_transfer", batch)
        owner = self._owner(module, "transfer_batch_to_device")
        if owner is None:
            return move(batch, device)
        return owner.transfer_batch_to_device(batch, device, 0)

    def changed_on_device(self, module: nn.Module, batch: Any) -> Any:
        """The batch after `on_after_batch_transfer`, which a Trainer runs in every step.

        Not under autocast: there only the step itself is.
        """
        if self._owner(module, "on_after_batch_transfer") is None:
            return batch
        device = next((tensor.device for tensor in tensors_in(batch)), torch.device("cpu"))
        with torch.autocast(device.type, enabled=False):
            return self._hook(module, "on_after_batch_transfer", batch)

    def _hook(self, module: nn.Module | None, name: str, batch: Any) -> Any:
        owner = self._owner(module, name)
        return batch if owner is None else getattr(owner, name)(batch, 0)

    def _owner(self, module: nn.Module | None, hook: str) -> Any:
        """Whose hook runs: the data module's, else the module's; None for Lightning's own."""
        for owner in (self._datamodule, module):
            if owner is not None and overrides(owner, hook):
                return owner
        return None


def _single_loader(source: Any) -> Any:
    """The loader that a module or data module trains on."""
    if not overrides(source, "train_dataloader"):
        raise WorkloadError(
            f"{type(source).__name__} has no train_dataloader",
            next_step="write one, or give Workload.from_lightning a DataLoader",
        )
    loader = source.train_dataloader()
    if isinstance(loader, DataLoader):
        return loader
    raise WorkloadError(
        f"train_dataloader of {type(source).__name__} must return one DataLoader",
        found=f"a {type(loader).__name__}",
        next_step="give Workload.from_lightning the loader whose batches are to be measured",
    )
