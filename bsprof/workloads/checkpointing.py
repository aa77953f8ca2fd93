"""Activation checkpointing: which blocks of a model are recomputed in the backward pass."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from bsprof.errors import UsageError, WorkloadError
from bsprof.workloads.faults import user_code
from bsprof.workloads.workload import Workload

_LISTS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)
_Classes = type[nn.Module] | tuple[type[nn.Module], ...]


def apply_checkpointing(model: nn.Module, workload: Workload, every: int) -> int:
    """Make every Nth block of the model recompute its activations; how many there are.

    Raises:
        UsageError: the model has fewer than N blocks, so nothing would be recomputed.
        WorkloadError: no blocks were found.
    """
    blocks = find_blocks(model, workload)
    if every > len(blocks):
        raise UsageError(
            f"--activation-checkpointing {every} has no effect",
            found=f"the model has {len(blocks)} blocks",
            next_step=f"use full, or a number up to {len(blocks)}",
        )
    chosen = blocks[every - 1 :: every]
    for block in chosen:
        # On the instance, not the class: a block that is not chosen keeps its own forward.
        block.forward = functools.partial(_recomputed, block.forward)
    _keep_no_cache(model)
    return len(chosen)


def _recomputed(forward: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Run a block now, and once more in the backward pass on the same arguments.

    Lists are copied before the block and again within each run: DenseNet's layers share one that
    grows after them, HRNet's modules write into theirs, and the second run must see neither.
    """

    def run(*arguments: Any, **named: Any) -> Any:
        return forward(*map(_copied, arguments), **{k: _copied(v) for k, v in named.items()})

    kept = {key: _copied(value) for key, value in named.items()}
    return checkpoint(run, *map(_copied, arguments), use_reentrant=False, **kept)


def _copied(argument: Any) -> Any:
    return list(argument) if type(argument) is list else argument


def find_blocks(model: nn.Module, workload: Workload) -> Sequence[nn.Module]:
    """The blocks of a model in order: the workload's own word, else those that the model repeats.

    Raises:
        WorkloadError: there are none.
    """
    if workload.checkpoint_blocks is not None:
        with user_code("cannot list the blocks for activation checkpointing"):
            blocks = list(workload.checkpoint_blocks(model))
    else:
        blocks = repeated_blocks(model)
    if not blocks:
        raise WorkloadError(
            "found no blocks for activation checkpointing",
            found=f"no list of like modules in {type(model).__name__}",
            next_step="leave the option out, or give the Workload a `checkpoint_blocks` function "
            "that lists them",
        )
    return blocks


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks that a model repeats, in order of registration; empty where it repeats none.

    Blocks have parameters and submodules. They are the outermost members of the model's lists
    (`nn.ModuleList`, `nn.Sequential`, `nn.ModuleDict`) whose class is found in its lists twice or
    more, and what is alone in an `nn.ModuleList`. A list among them, or a module whose class is
    called a stage, gives way to blocks inside it that hold most of its parameters. Where lists
    hold none, the same is asked of the attributes of modules; at last, lists of like modules
    without submodules will do.
    """
    return _outermost_blocks(model, _LISTS) or _outermost_blocks(model, nn.Module) or _plain(model)


def _outermost_blocks(model: nn.Module, rows: _Classes) -> list[nn.Module]:
    """The outermost blocks among the members of the rows of a model."""
    parents = [module for module in model.modules() if isinstance(module, rows)]
    members = {member for parent in parents for member in _members(parent) if _has_parts(member)}
    counts = Counter(type(member) for member in members)
    if rows is nn.Module:
        del counts[nn.Sequential]  # as attributes they are any parts of a model
    classes = frozenset(kind for kind, count in counts.items() if count > 1)
    return list(dict.fromkeys(_blocks_in(model, rows, classes)))


def _blocks_in(module: nn.Module, rows: _Classes, classes: frozenset[type]) -> Iterator[nn.Module]:
    """The outermost members of rows in a module that are of these classes, in order."""
    is_row = isinstance(module, rows)
    members = list(_members(module) if is_row else module.children())
    alone = isinstance(module, nn.ModuleList) and len(members) == 1
    for member in members:
        is_block = is_row and _has_parts(member) and (alone or type(member) in classes)
        if not is_block:
            yield from _blocks_in(member, rows, classes)
            continue
        inside = list(_blocks_in(member, rows, classes)) if _is_group(member) else []
        most = 2 * sum(_parameter_count(block) for block in inside) > _parameter_count(member)
        yield from inside if most else [member]


def _plain(module: nn.Module) -> list[nn.Module]:
    """Members of the outermost lists that hold nothing but layers of one class."""
    members = list(_members(module)) if isinstance(module, _LISTS) else []
    alike = len(members) > 1 and len({type(member) for member in members}) == 1
    if alike and _has_parameters(members[0]):
        return members
    return [layer for child in module.children() for layer in _plain(child)]


def _members(module: nn.Module) -> Iterator[nn.Module]:
    """What a list holds; in place of lists that cannot be called, what they hold."""
    for child in module.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _members(child)
        else:
            yield child


def _has_parts(module: nn.Module) -> bool:
    return _has_parameters(module) and any(True for _ in module.children())


def _is_group(module: nn.Module) -> bool:
    """Whether blocks are rather inside: a chain, or a stage of a hierarchical model."""
    return isinstance(module, nn.Sequential) or "stage" in type(module).__name__.lower()


def _has_parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


def _parameter_count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _keep_no_cache(model: nn.Module) -> None:
    """Switch off the cache of keys and values, which transformers fills in training too.

    A block that runs a second time would append to it again.
    """
    for module in model.modules():
        config = getattr(module, "config", None)
        theirs = any(c.__module__.startswith("transformers.") for c in type(config).__mro__)
        if config is not None and theirs and getattr(config, "use_cache", False):
            config.use_cache = False
