"""`Workload.from_lightning`: a LightningModule's own steps and optimizer, in bsprof's loop.

Takes `lightning` and `pytorch_lightning` alike, and imports neither itself: what the user hands
over tells which it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bsprof.errors import WorkloadError
from bsprof.workloads.adapters.drawing import Choice
from bsprof.workloads.adapters.lightning_data import LightningData
from bsprof.workloads.adapters.lightning_optimizers import single_optimizer
from bsprof.workloads.adapters.lightning_trainer import Trainers, lightning_package, overrides
from bsprof.workloads.adapters.models import model_function
from bsprof.workloads.batches import describe_no_tensor
from bsprof.workloads.signatures import read_signature, takes
from bsprof.workloads.workload import Workload

BATCH_INDEX = 1
"""The `batch_idx` of every step: an ordinary one, neither the first nor every hundredth."""
START_HOOKS = {
    True: ("on_fit_start", "on_train_start", "on_train_epoch_start"),
    False: ("on_validation_start", "on_validation_epoch_start"),
}
"""Hooks that run once before the first step, by whether the module trains, in a Trainer's order."""


def from_lightning(
    module: Any,
    data: Any,
    choice: Choice,
    *,
    size: Callable[[Any], int] | None,
    dataset_size: int | None,
) -> Workload:
    """See `Workload.from_lightning`."""
    trainers = Trainers()
    maker = ModuleMaker(module, trainers)
    source = LightningData(maker.waiting if data is None else data, choice, trainers)
    steps = ModuleSteps(source)
    return Workload(
        model=maker.make,
        batch=lambda b, device: source.batch(maker.module, b, device),
        loss=steps.loss,
        optimizer=maker.optimizer,
        size=size,
        count=source.drawing.count,
        tokens_per_sample=source.drawing.tokens_per_sample,
        dataset_size=dataset_size if dataset_size is not None else source.drawing.size,
        notes=source.drawing.notes(),
    )


class ModuleMaker:
    """Makes modules, ready to run.

    Attributes:
        module: The newest; None before the first.

    Args:
        source: The user's module, or a function that makes one.
        trainers: Gives what a module is attached to.
    """

    def __init__(self, source: Any, trainers: Trainers) -> None:
        self._source = model_function(source)
        self._trainers = trainers
        self._waiting: nn.Module | None = None
        self.module: Any = None

    def waiting(self) -> Any:
        """The module that the next `make` returns, for who needs it before: its loader."""
        if self._waiting is None:
            self._waiting = self._prepared()
        return self._waiting

    def make(self) -> nn.Module:
        """A module after the hooks that a Trainer runs before it makes the optimizer."""
        module, self._waiting = self.waiting(), None
        self.module = module
        return module  # type: ignore[no-any-return]

    def optimizer(self, _parameters: Iterable[nn.Parameter]) -> Optimizer:
        """The optimizer of the newest module's `configure_optimizers`."""
        optimizer = single_optimizer(self.module.configure_optimizers())
        self.module.trainer.strategy.optimizers = [optimizer]  # what self.optimizers() answers
        return optimizer

    def _prepared(self) -> Any:
        module: Any = self._source()
        package = lightning_package(module, "LightningModule")
        if package is None:
            raise WorkloadError(
                "Workload.from_lightning needs a LightningModule",
                found=f"a {type(module).__name__}",
                next_step="give it one, or a function that makes one",
            )
        if not module.automatic_optimization:
            raise WorkloadError(
                f"{type(module).__name__} optimizes by hand (automatic_optimization is False)",
                found="a training_step that also steps its optimizers, so that neither a "
                "micro-step nor an optimizer step can be measured by itself",
                next_step="write the forward and backward pass of one micro-batch as a function "
                "for Workload.from_step, one workload for each optimizer",
            )
        trainer = self._trainers.of(package)
        module.trainer = trainer
        trainer.strategy.connect(module)
        module.prepare_data()
        module.setup("fit")
        module.configure_model()
        return module


class ModuleSteps:
    """Runs a module's `training_step` or `validation_step` on one batch.

    Args:
        data: Where the batches come from; its hooks change them on the device.
    """

    def __init__(self, data: LightningData) -> None:
        self._data = data
        self._started: set[tuple[int, bool]] = set()
        self._compiled: dict[tuple[int, str], Callable[..., Any]] = {}

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of the step that the module's mode asks for.

        Raises:
            WorkloadError: the step returned none.
        """
        module: Any = getattr(model, "_orig_mod", model)  # of what torch.compile made
        self._start(module)
        name = "training_step" if module.training else "validation_step"
        step = self._step(module, name, compiled=module is not model)
        return _loss_of(step(self._data.changed_on_device(module, batch)), module, name)

    def _start(self, module: Any) -> None:
        """Run the hooks of the start of training, or of validation, once."""
        key = (id(module), module.training)
        if key not in self._started:
            self._started.add(key)
            for hook in START_HOOKS[module.training]:
                getattr(module, hook)()

    def _step(self, module: Any, name: str, *, compiled: bool) -> Callable[[Any], Any]:
        """The module's step as a function of the batch."""
        if not overrides(module, name):
            raise WorkloadError(
                f"{type(module).__name__} has no {name}",
                next_step="write one that returns the loss"
                + ("; --mode infer runs it" if name == "validation_step" else ""),
            )
        step = getattr(module, name)
        arguments = _step_arguments(step, name)
        if compiled:
            # As Lightning does: a compiled module alone would leave its step eager.
            key = (id(module), name)
            if key not in self._compiled:
                self._compiled[key] = torch.compile(step, dynamic=False)
            step = self._compiled[key]
        return lambda batch: step(batch, *arguments)


def _step_arguments(step: Callable[..., Any], name: str) -> tuple[int, ...]:
    """What a step takes after the batch: its index, or nothing."""
    signature = read_signature(step) or inspect.Signature()
    if "dataloader_iter" not in signature.parameters:
        for arguments in ((BATCH_INDEX,), ()):
            if takes(signature, 1 + len(arguments)):
                return arguments
    raise WorkloadError(
        f"{name} must be callable as {name}(batch, batch_idx)",
        found=f"its parameters are {signature}",
        next_step="let it take one batch",
    )


def _loss_of(output: Any, module: Any, name: str) -> Tensor:
    """The loss in what a step returned: a tensor, or the entry `loss`."""
    loss = output.get("loss") if isinstance(output, Mapping) else output
    if isinstance(loss, Tensor):
        return loss
    found, _ = describe_no_tensor(output)
    raise WorkloadError(
        f"{name} of {type(module).__name__} has returned no loss",
        found=found,
        next_step="let it return the loss, a tensor, or a dict with the key 'loss'",
    )
