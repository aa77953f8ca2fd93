"""`hf:DIR-or-id`: a model of the user's transformers from its configuration, random weights."""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import Note, WorkloadSpec
from bsprof.workloads.checkpointing import repeated_blocks
from bsprof.workloads.faults import user_code
from bsprof.workloads.sources.hf_config import ConfigFile, load_config, offline, read_config
from bsprof.workloads.sources.hf_sizes import prepare, read_sizes
from bsprof.workloads.sources.hf_tasks import TASKS, Batch, Sizes, Task, classes_of, heads_of
from bsprof.workloads.sources.packages import import_package
from bsprof.workloads.workload import Workload

ATTENTION = ("sdpa", "eager")
PARTS = ("text_config", "vision_config", "audio_config", "speech_config")
"""Configurations within one, of models that take more than text or more than images."""


def workload(spec: WorkloadSpec, name: str) -> Workload:
    """The workload of `--model hf:NAME`: a folder, a `config.json`, or an id in the hub's cache.

    The head is the one that the configuration's `architectures` names. A configuration that names
    none, or a model without a head, gets the first of these that transformers has for its type:
    sequence-to-sequence, masked, causal language model, image classification, sequence or token
    classification, question answering. `--model-option`s are fields of the configuration;
    `architectures=NAME` chooses another head.

    The loss is the model's own. Text is random, without padding and so without an attention mask;
    a sample has `--seq-len` tokens, by default as many as the model has positions, up to 1024
    (causal) or 512. Of a sequence-to-sequence model both sides have that length, and the tokens
    of a sample are those of the target. Images have the configuration's size, or `--image-size`.
    No cache of keys and values is made unless an option says `use_cache=true`.

    Raises:
        UsageError: an option that has no effect or does not fit, code that was not asked for, a
            model that needs more than text or images.
        WorkloadError: transformers is not installed, or the configuration cannot be found, read
            or built. Nothing is downloaded.
    """
    transformers = import_package("transformers", spec.model)
    if spec.attention not in (None, *ATTENTION):
        raise UsageError(
            f"{spec.model} cannot be built with attention {spec.attention!r}",
            next_step=f"use one of {', '.join(ATTENTION)}",
        )
    file = read_config(spec, name)
    config = load_config(transformers, spec, file)
    named = (config.architectures or [None])[0]
    head, task = _head(spec, config, file, named)
    _refuse_parts(spec, config)
    config.architectures = [head]
    prepare(config, task, keep_cache="use_cache" in spec.model_options)
    sizes = read_sizes(spec, config, task)
    count = task.tokens
    return Workload(
        model=lambda: _build(transformers, spec, config, task),
        batch=_batches(task, sizes, spec.seed),
        loss=loss,
        count=None if count is None else lambda batch: count(batch["labels"]),
        tokens_per_sample=None if task.of_images else sizes.seq_len,
        uses_seq_len=not task.of_images,
        uses_image_size=task.of_images,
        uses_attention=_has_fused_attention(transformers, head),
        checkpoint_blocks=blocks,
        notes=_notes(named, head, task),
    )


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """The model's own loss, the first of its outputs where it is given labels."""
    value: Tensor = model(**batch)[0]
    return value


def _head(spec: WorkloadSpec, config: Any, file: ConfigFile, named: str | None) -> tuple[str, Task]:
    """The class of the model's head, and what it is trained for.

    Args:
        spec: What was asked for.
        config: transformers' configuration.
        file: The file it was read from.
        named: The class that the configuration names; None where it names none.

    Raises:
        UsageError: a head whose loss is not known here; those known for the type are named.
    """
    tables = importlib.import_module("transformers.models.auto.modeling_auto")
    heads = dict(heads_of(config.model_type, tables))
    if spec.trust_remote_code:
        heads = _remote_heads(file.fields["auto_map"]) | heads
    if named in heads:
        return named, heads[named]
    if heads and named in (None, *classes_of(tables.MODEL_MAPPING_NAMES, config.model_type)):
        return next(iter(heads.items()))
    raise UsageError(
        f"{spec.model} has a head whose loss is not known here",
        found=f"{named}, for a model of type {config.model_type}",
        next_step=f"choose another, --model-option architectures=NAME: {', '.join(heads)}"
        if heads
        else "measure it through a factory of your own, file.py:factory",
    )


def _notes(named: str | None, head: str, task: Task) -> tuple[Note, ...]:
    """A note where the configuration does not name the head that was taken."""
    if named == head:
        return ()
    return (
        Note(
            code="head-chosen",
            message=f"measured as {head} ({task.words}); the configuration names "
            f"{named or 'no architecture'}",
            hint="--model-option architectures=NAME chooses another head",
        ),
    )


def _remote_heads(auto_map: Mapping[str, Any]) -> dict[str, Task]:
    """Heads that come with the model: the last names of `auto_map`'s values."""
    tasks = {task.head: task for task in TASKS}
    return {
        str(reference).rpartition(".")[2]: tasks[head]
        for head, reference in auto_map.items()
        if head in tasks
    }


def _refuse_parts(spec: WorkloadSpec, config: Any) -> None:
    """Refuse models of several kinds of input: half a model is not what was asked for."""
    configs = (config, getattr(config, "encoder", None))
    parts = [part for part in PARTS if any(getattr(c, part, None) is not None for c in configs)]
    if parts:
        raise UsageError(
            f"{spec.model} takes several kinds of input, of which bsprof makes only one",
            found=f"{', '.join(parts)} in its configuration",
            next_step="measure it through a factory of your own, file.py:factory, or one part of "
            "it from a configuration of its own",
        )


def _batches(task: Task, sizes: Sizes, seed: int) -> Callable[[int, torch.device], Batch]:
    """A batch function: the task's keyword arguments of the model."""
    generator = torch.Generator().manual_seed(seed)

    def batch(micro_batch_size: int, device: torch.device) -> Batch:
        made = task.make(sizes, micro_batch_size, generator)
        return {key: value.to(device) for key, value in made.items()}

    return batch


def _build(transformers: ModuleType, spec: WorkloadSpec, config: Any, task: Task) -> nn.Module:
    """The model with random weights.

    Raises:
        WorkloadError: it computes no loss from what the task gives it.
    """
    options: dict[str, Any] = {"trust_remote_code": spec.trust_remote_code}
    if spec.attention is not None:
        options["attn_implementation"] = spec.attention
    with offline():
        # A copy: transformers writes into the configuration that it builds from.
        model: nn.Module = getattr(transformers, task.head).from_config(
            copy.deepcopy(config), **options
        )
    takes = inspect.signature(type(model).forward).parameters
    if "labels" not in takes and "start_positions" not in takes:
        raise WorkloadError(
            f"{spec.model} computes no loss",
            found=f"{type(model).__name__} takes no labels",
            next_step="choose another head, --model-option architectures=NAME, or measure it "
            "through a factory of your own, file.py:factory",
        )
    return model


def _has_fused_attention(transformers: ModuleType, head: str) -> bool:
    """Whether there is a choice of attention; heads that come with a model are taken at trust."""
    with user_code(f"cannot load {head} from transformers"):
        return bool(getattr(getattr(transformers, head, None), "_supports_sdpa", True))


def blocks(model: nn.Module) -> list[nn.Module]:
    """The layers that transformers itself would recompute, the innermost; else what repeats."""
    try:
        layers = importlib.import_module("transformers.modeling_layers")
    except ModuleNotFoundError:  # transformers before 4.53 has no class for them
        return repeated_blocks(model)
    kind = layers.GradientCheckpointingLayer
    found = [module for module in model.modules() if isinstance(module, kind)]
    inner = [m for m in found if not any(isinstance(part, kind) for part in [*m.modules()][1:])]
    return inner or repeated_blocks(model)
