"""The training step over a workload: what a careful PyTorch loop does, and nothing more.

Only a worker imports this. Nothing is timed, counted or caught here: an error inside a step
reaches the caller as the workload raised it, and no tensor of a step outlives it but the
gradients.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import Category, Mode, Note, Precision, WorkloadFacts, WorkloadSpec
from bsprof.workloads.batches import (
    check_batch,
    describe_no_tensor,
    map_tensors,
    observed_size,
)
from bsprof.workloads.blocks import parse_checkpointing
from bsprof.workloads.checkpointing import apply_checkpointing
from bsprof.workloads.compiling import check_compiled, compile_model
from bsprof.workloads.ema import MovingAverage
from bsprof.workloads.faults import user_code
from bsprof.workloads.freezing import freeze
from bsprof.workloads.lora import apply_lora
from bsprof.workloads.optimizers import make_optimizer
from bsprof.workloads.precision import AUTOCAST_TYPES, WEIGHT_TYPES, autocast, set_switches
from bsprof.workloads.residents import storages_by_category
from bsprof.workloads.workload import Workload


class Training:
    """A built workload and its step; made by `build_training`.

    Attributes:
        spec: What was asked for.
        workload: What the user handed over.
        device: Where it runs.
        model: The model on the device, in training or evaluation mode, with its adapters, and
            not compiled.
        optimizer: None in inference.
        average: The moving average of the weights; None without `ema`.
        facts: What the workload turned out to be, without uncounted operators.
        notes: What could not be done as asked, and what had to be chosen.
    """

    def __init__(
        self,
        spec: WorkloadSpec,
        workload: Workload,
        device: torch.device,
        model: nn.Module,
        optimizer: Optimizer | None,
        notes: tuple[Note, ...],
    ) -> None:
        self.spec = spec
        self.workload = workload
        self.device = device
        self.model = model
        self.optimizer = optimizer
        self.average = MovingAverage(model) if spec.ema else None
        self.facts = read_facts(workload, model, optimizer)
        self.notes = notes
        self._runs = compile_model(model) if spec.compile else model
        self._scaler: torch.amp.GradScaler | None = None
        self._steps_taken = 0
        if optimizer is not None:
            optimizer.register_step_post_hook(self._after_step)
            if spec.precision is Precision.AMP_FP16:
                self._scaler = torch.amp.GradScaler(device.type)
        self._own_step_scales = workload.micro_step is not None and (
            "scale" in inspect.signature(workload.micro_step).parameters
        )

    def make_batch(self, micro_batch_size: int) -> Any:
        """A fresh batch of that many samples, checked, in the workload's types and layout.

        With `bf16` and `fp16` floating tensors are cast to the type of the weights; with
        `channels_last` four-dimensional ones are laid out so.

        Raises:
            WorkloadError: the batch function raised, or the batch has another size (both are
                named) or lies on another device.
        """
        with user_code(f"cannot make a batch of {micro_batch_size} samples"):
            batch = self.workload.batch(micro_batch_size, self.device)
        check_batch(self.workload, batch, micro_batch_size, self.device)
        dtype = WEIGHT_TYPES.get(self.spec.precision)
        if dtype is not None:
            batch = map_tensors(lambda t: t.to(dtype) if t.is_floating_point() else t, batch)
        if self.spec.channels_last:
            batch = map_tensors(_channels_last, batch)
        return batch

    def observed_size(self, batch: Any) -> int:
        """Samples in a batch, read back from it."""
        return observed_size(self.workload, batch)

    def micro_step(self, batch: Any, scale: float) -> None:
        """Forward and backward of one micro-batch; in inference the forward pass alone.

        Args:
            batch: From `make_batch`.
            scale: The loss is multiplied by it before the backward pass: the micro-batch's share
                of an update. A workload's own `micro_step` without a parameter `scale` ignores it.

        Raises:
            WorkloadError: the loss is not one number with a gradient.
        """
        if self.spec.mode is Mode.INFER:
            with torch.inference_mode(), autocast(self.spec.precision, self.device):
                _check_number(self.workload.loss(self._runs, batch))
        elif self.workload.micro_step is not None:
            scaling = {"scale": scale} if self._own_step_scales else {}
            self.workload.micro_step(self._runs, batch, **scaling)
        else:
            with autocast(self.spec.precision, self.device):
                loss = self.workload.loss(self._runs, batch)
            _check_loss(loss)
            if scale != 1.0:
                loss = loss * scale
            if self._scaler is not None:
                loss = self._scaler.scale(loss)
            loss.backward()  # type: ignore[no-untyped-call]

    def optimizer_step(self) -> bool:
        """Unscale, clip, step; whether the optimizer really stepped (a scaler may skip it).

        A moving average of the weights follows each step that was taken.

        In inference there is nothing to step: False.
        """
        if self.optimizer is None:
            return False
        taken = self._steps_taken
        if self.spec.clip_norm is not None:
            if self._scaler is not None:
                self._scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.spec.clip_norm)
        if self._scaler is None:
            self.optimizer.step()
        else:
            self._scaler.step(self.optimizer)
            self._scaler.update()
        stepped = self._steps_taken > taken
        if stepped and self.average is not None:
            self.average.update()
        return stepped

    def zero_grad(self) -> None:
        """Drop the gradients, so that their memory is free until the next backward pass."""
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)

    def optimizer_state_exists(self) -> bool:
        """Whether all state that the optimizer will ever keep is there.

        PyTorch's optimizers make their state in the first step that really happens; some keep
        none. In inference there is none to wait for.
        """
        return self.optimizer is None or self._steps_taken > 0

    def storages(self) -> dict[Category, tuple[torch.UntypedStorage, ...]]:
        """Storages of weights (with buffers), gradients and optimizer state, each named once.

        A moving average of the weights counts among them.
        """
        averages = () if self.average is None else self.average.tensors()
        return storages_by_category(self.model, self.optimizer, averages)

    def resident_bytes(self) -> dict[Category, int]:
        """Bytes of what `storages` names, as it is now."""
        return {
            category: sum(storage.nbytes() for storage in storages)
            for category, storages in self.storages().items()
        }

    def check_compiled(self) -> tuple[Note, ...]:
        """After a compiled step: notes on what stayed eager; nothing without `compile`.

        Raises:
            WorkloadError: nothing was compiled.
        """
        return check_compiled() if self.spec.compile else ()

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        """Count a step that the optimizer took; fused ones are called to find that they skip."""
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is None or not bool(found_inf.item()):
            self._steps_taken += 1


def build_training(spec: WorkloadSpec, workload: Workload, device: str) -> Training:
    """Build model and optimizer on a device, as the spec asks.

    Sets the process's seeds, TF32 switches and cuDNN benchmark mode.

    Args:
        spec: What was asked for.
        workload: From `resolve`.
        device: A torch device: `cpu`, `cuda:1`, ...

    Raises:
        UsageError: an option that cannot be, or that would have no effect on this workload.
        WorkloadError: the user's code raised, or gave no model or no optimizer. Errors of memory
            and of the device pass through untouched.
    """
    place = torch.device(device)
    every = parse_checkpointing(spec.activation_checkpointing)
    _check_spec(spec, workload, place)
    notes = (*workload.notes, *set_switches(spec.precision))
    torch.backends.cudnn.benchmark = spec.cudnn_benchmark
    torch.manual_seed(spec.seed)
    model = _build_model(spec, workload, place)
    if every:
        apply_checkpointing(model, workload, every)
    if spec.lora_rank is not None:
        notes += apply_lora(model, spec.lora_rank, spec.lora_targets)
    if spec.freeze:
        notes += freeze(model, spec.freeze)
    model.train(spec.mode is Mode.TRAIN)
    optimizer = _build_optimizer(spec, workload, model) if spec.mode is Mode.TRAIN else None
    training = Training(spec, workload, place, model, optimizer, notes)
    if workload.tokens_per_sample is None and workload.count is not None:
        tokens = _counted_tokens(training, workload.count)
        training.facts = replace(training.facts, tokens_per_sample=tokens)
    return training


def read_facts(workload: Workload, model: nn.Module, optimizer: Optimizer | None) -> WorkloadFacts:
    """Counts and names of a built workload, tied parameters once."""
    parameters = list(model.parameters())
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.training]
    return WorkloadFacts(
        parameter_count=sum(p.numel() for p in parameters),
        trainable_parameter_count=sum(p.numel() for p in parameters if p.requires_grad),
        parameter_bytes=sum(p.numel() * p.element_size() for p in parameters),
        tokens_per_sample=workload.tokens_per_sample,
        batch_norm_modules=len(norms),
        dataset_size=workload.dataset_size,
        optimizer=None if optimizer is None else type(optimizer).__name__,
    )


def _counted_tokens(training: Training, count: Callable[[Any], int]) -> int | None:
    """Tokens per sample by the workload's own count of one batch; None where it counts samples.

    The random state is as before: the count must not change what is trained on.
    """
    devices = [training.device] if training.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        try:
            batch = training.make_batch(1)
        except WorkloadError:
            return None  # told where a size is measured, if one of a single sample is
    with user_code("cannot count the tokens of a batch"):
        tokens = int(count(batch))
    return tokens if tokens > 1 else None


def _check_spec(spec: WorkloadSpec, workload: Workload, device: torch.device) -> None:
    """Refuse options that would change nothing here: the numbers would not be what was asked."""
    if spec.mode is Mode.INFER:
        for option, given in (
            ("--clip-norm", spec.clip_norm is not None),
            ("--optimizer-option", bool(spec.optimizer_options)),
            ("--activation-checkpointing", spec.activation_checkpointing != "none"),
            ("--lora", spec.lora_rank is not None),
            ("--freeze", bool(spec.freeze)),
            ("--ema", spec.ema),
        ):
            if given:
                raise UsageError(f"{option} has no effect in inference", next_step="leave it out")
    elif workload.optimizer is not None and spec.optimizer_options:
        raise UsageError(
            f"--optimizer-option has no effect on {spec.model}",
            found="the workload brings its own optimizer",
            next_step="set the option there",
        )
    elif workload.micro_step is not None and spec.precision in AUTOCAST_TYPES:
        raise UsageError(
            f"--precision {spec.precision} has no effect on {spec.model}",
            found="the workload runs forward and backward itself",
            next_step="enter torch.autocast in its micro_step, and use --precision fp32",
        )
    if spec.cudnn_benchmark and device.type != "cuda":
        raise UsageError(f"--cudnn-benchmark has no effect on {device}", next_step="leave it out")


def _build_model(spec: WorkloadSpec, workload: Workload, device: torch.device) -> nn.Module:
    """The user's model, moved, cast and laid out."""
    with user_code(f"cannot build the model of {spec.model}"):
        model = None if isinstance(workload.model, nn.Module) else workload.model()
    if not isinstance(model, nn.Module):
        given = "a module itself" if model is None else f"one that returns a {type(model).__name__}"
        raise WorkloadError(
            f"`model` of {spec.model} must be a function that returns a torch.nn.Module",
            found=given,
            next_step="write model=lambda: MyModel(...)",
        )
    model.to(device=device, dtype=WEIGHT_TYPES.get(spec.precision))
    if spec.channels_last:
        if not any(p.dim() == 4 for p in model.parameters()):
            raise UsageError(
                f"--channels-last has no effect on {spec.model}",
                found="no four-dimensional weights",
                next_step="leave it out",
            )
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def _build_optimizer(spec: WorkloadSpec, workload: Workload, model: nn.Module) -> Optimizer:
    """The workload's own optimizer, else the one the spec names, over what is trainable."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise WorkloadError(
            f"the model of {spec.model} has no trainable parameter",
            next_step="let some parameters require a gradient, or measure with --mode infer",
        )
    if workload.optimizer is None:
        return make_optimizer(spec.optimizer, spec.optimizer_options, parameters)
    with user_code(f"cannot build the optimizer of {spec.model}"):
        optimizer = workload.optimizer(parameters)
    if not isinstance(optimizer, Optimizer):
        raise WorkloadError(
            f"`optimizer` of {spec.model} must return a torch.optim.Optimizer",
            found=f"it returned a {type(optimizer).__name__}",
        )
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if spec.lora_rank is not None and not held.issuperset(map(id, parameters)):
        raise UsageError(
            f"--lora has no effect on {spec.model}",
            found="an optimizer that was made before the adapters, and does not hold them",
            next_step="make it from the parameters that `optimizer` is given",
        )
    return optimizer


def _check_number(loss: object) -> None:
    """Refuse a loss that is not one number.

    Raises:
        WorkloadError: saying what it is instead.
    """
    next_step = "return the mean over the batch from loss(model, batch)"
    if not isinstance(loss, Tensor):
        found, next_step = describe_no_tensor(loss)
    elif loss.numel() != 1:
        found = f"a tensor of shape {tuple(loss.shape)}"
    else:
        return
    raise WorkloadError(
        "the loss must be one number, as a tensor", found=found, next_step=next_step
    )


def _check_loss(loss: Tensor) -> None:
    """Refuse a loss that no backward pass can start from.

    Raises:
        WorkloadError: not one number, or without a gradient.
    """
    _check_number(loss)
    if not loss.requires_grad:
        raise WorkloadError(
            "the loss has no gradient",
            found="a tensor that does not depend on a trainable parameter",
            next_step="return it without .item(), .detach() or torch.no_grad()",
        )


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.to(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
