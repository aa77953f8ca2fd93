"""`Workload.from_trainer`: a transformers Trainer's model, data, loss and optimizer.

Imports no transformers: the trainer that the user hands over has.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import Note, Precision
from bsprof.workloads.adapters.drawing import Choice
from bsprof.workloads.adapters.models import made
from bsprof.workloads.adapters.real_batches import open_data
from bsprof.workloads.batches import tensors_in
from bsprof.workloads.workload import Workload

MIXED = {
    "bf16": (Precision.AMP_BF16, torch.bfloat16),
    "fp16": (Precision.AMP_FP16, torch.float16),
}
"""What Accelerate calls a mixed precision: `--precision`, and the type that autocast uses."""


def from_trainer(
    trainer: Any,
    choice: Choice,
    *,
    size: Callable[[Any], int] | None,
    dataset_size: int | None,
) -> Workload:
    """See `Workload.from_trainer`."""
    job = TrainerJob(trainer)
    drawing = open_data(_loader(job.trainer), choice)
    return Workload(
        model=job.model,
        batch=drawing.batch,
        loss=job.loss,
        optimizer=job.optimizer,
        size=size,
        count=drawing.count,
        tokens_per_sample=drawing.tokens_per_sample,
        dataset_size=dataset_size if dataset_size is not None else drawing.size,
        notes=(*drawing.notes(), *_notes(job.trainer)),
    )


class TrainerJob:
    """A trainer and its model.

    Attributes:
        trainer: The newest.

    Args:
        source: The user's Trainer, or a function that makes one.

    Raises:
        WorkloadError: it is none, or one whose model is spread over processes.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self._fresh = True
        self._checked = False
        self.trainer = _checked_trainer(source)

    def model(self) -> nn.Module:
        """The model, as `Trainer.train` would begin with it."""
        if not self._fresh:
            self.trainer = _checked_trainer(self._source)
        self._fresh = False
        trainer = self.trainer
        if trainer.model_init is not None:
            trainer.model = trainer.model_wrapped = trainer.call_model_init()
            trainer.optimizer = None
        _enable_checkpointing(trainer)
        _return_fp32(trainer)
        return trainer.model  # type: ignore[no-any-return]

    def optimizer(self, _parameters: Iterable[nn.Parameter]) -> Optimizer:
        """The optimizer that the Trainer was given, or makes by its arguments."""
        optimizer = self.trainer.create_optimizer()
        # After Trainer.train it is Accelerate's wrapper around the optimizer.
        inner: Optimizer = getattr(optimizer, "optimizer", optimizer)
        return inner

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """`compute_loss` of one micro-batch, without `num_items_in_batch`: its own mean.

        Raises:
            UsageError: the Trainer's settings and bsprof's options disagree.
        """
        if not self._checked:
            _check_precision(self.trainer, batch)
            _check_compiled(self.trainer, model)
            self._checked = True
        # A copy: with label smoothing, or a loss function given, compute_loss takes the labels out.
        loss: Tensor = self.trainer.compute_loss(model, copy.copy(batch))
        return loss


def _checked_trainer(source: Any) -> Any:
    trainer = made(source)
    if not all(
        hasattr(trainer, name) for name in ("compute_loss", "create_optimizer", "accelerator")
    ):
        raise WorkloadError(
            "Workload.from_trainer needs a transformers.Trainer",
            found=f"a {type(trainer).__name__}",
            next_step="give it one, or a function that makes one",
        )
    for engine in ("deepspeed", "fsdp"):
        if getattr(trainer, f"is_{engine}_enabled", False):
            raise WorkloadError(
                f"cannot take over a Trainer that uses {engine}",
                found="its model is built for several processes",
                next_step=f"make it without {engine} here",
            )
    return trainer


def _loader(trainer: Any) -> Any:
    """The training loader; that of evaluation where the Trainer only evaluates."""
    if trainer.train_dataset is None and trainer.eval_dataset is not None:
        return trainer.get_eval_dataloader()
    return trainer.get_train_dataloader()


def _enable_checkpointing(trainer: Any) -> None:
    """Recompute activations where the arguments ask for it; `Trainer.train` does it, not before."""
    if not _recomputes(trainer.args):
        return
    # transformers renamed them in its version 5, and added options to the new ones.
    for word in ("activation", "gradient"):
        enable = getattr(trainer.model, f"{word}_checkpointing_enable", None)
        if enable is not None:
            name = f"{word}_checkpointing_kwargs"
            options = dict(getattr(trainer.args, name, None) or {})
            own = {key: options.pop(key) for key in ("every_n_layers", "offload") if key in options}
            enable(**{name: options or None}, **own)
            return


def _return_fp32(trainer: Any) -> None:
    """Have the model's outputs cast to fp32 under mixed precision, as Accelerate does in training.

    The copy of the logits is a good part of the memory of a language model.
    """
    if trainer.accelerator.mixed_precision in MIXED:
        utils = importlib.import_module("accelerate.utils")
        trainer.model.forward = utils.convert_outputs_to_fp32(trainer.model.forward)


def _recomputes(arguments: Any) -> bool:
    names = ("activation_checkpointing", "gradient_checkpointing")
    return any(bool(getattr(arguments, name, False)) for name in names)


def _check_precision(trainer: Any, batch: Any) -> None:
    """Refuse another precision than the Trainer's: what is measured would not be what it runs."""
    wanted = trainer.accelerator.mixed_precision
    if wanted == "no":
        return
    precision, dtype = MIXED.get(wanted, (None, None))
    if precision is None:
        raise UsageError(
            f"cannot measure the mixed precision {wanted} of the Trainer's arguments",
            next_step=f"use one of {', '.join(MIXED)}",
        )
    device = next((tensor.device.type for tensor in tensors_in(batch)), "cpu")
    if not torch.is_autocast_enabled(device) or torch.get_autocast_dtype(device) != dtype:
        raise UsageError(
            f"the Trainer's arguments ask for {wanted}, --precision for something else",
            next_step=f"give --precision {precision}, or make the Trainer without {wanted}=True",
        )


def _check_compiled(trainer: Any, model: nn.Module) -> None:
    wants = bool(getattr(trainer.args, "torch_compile", False))
    if wants and not hasattr(model, "_orig_mod"):
        raise UsageError(
            "the Trainer's arguments ask for torch_compile, bsprof was not asked to compile",
            next_step="give --compile, or make the Trainer without torch_compile=True",
        )


def _notes(trainer: Any) -> tuple[Note, ...]:
    """Remarks on settings that act otherwise here than in `Trainer.train`."""
    notes = []
    if _recomputes(trainer.args):
        notes.append(
            Note(
                code="trainer-checkpointing",
                message="the Trainer's arguments turn activation checkpointing on: it ran, "
                "whatever --activation-checkpointing says",
            )
        )
    left_out = [
        name
        for name in ("neftune_noise_alpha", "use_liger_kernel")
        if getattr(trainer.args, name, None)
    ]
    if left_out:
        notes.append(
            Note(
                code="trainer-settings",
                message=f"settings of the Trainer that were not applied: {', '.join(left_out)}",
                hint="apply them to the model before the Trainer is made",
            )
        )
    if _has_own_step(trainer):
        notes.append(
            Note(
                code="trainer-step",
                message=f"the training_step of {type(trainer).__name__} was not run: a micro-step "
                "is its compute_loss and the backward pass",
                hint="Workload.from_step runs a whole step of your own",
            )
        )
    return tuple(notes)


def _has_own_step(trainer: Any) -> bool:
    owner = next((kind for kind in type(trainer).__mro__ if "training_step" in vars(kind)), None)
    return owner is not None and owner.__module__ != "transformers.trainer"
