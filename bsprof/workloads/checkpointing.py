"""Activation checkpointing: which blocks of a model are recomputed in the backward pass."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from torch import nn
from torch.utils.checkpoint import checkpoint

from bsprof.errors import UsageError, WorkloadError
from bsprof.workloads.faults import user_code
from bsprof.workloads.workload import Workload


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
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    return len(chosen)


def find_blocks(model: nn.Module, workload: Workload) -> Sequence[nn.Module]:
    """The blocks of a model in order: the workload's own word, else its lists of like modules.

    Raises:
        WorkloadError: there are none.
    """
    if workload.checkpoint_blocks is not None:
        with user_code("cannot list the blocks for activation checkpointing"):
            blocks = list(workload.checkpoint_blocks(model))
    else:
        blocks = _repeated_blocks(model)
    if not blocks:
        raise WorkloadError(
            "found no blocks for activation checkpointing",
            found=f"no nn.ModuleList of like modules in {type(model).__name__}",
            next_step="give the Workload a `checkpoint_blocks` function that lists them",
        )
    return blocks


def _repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """Members of the outermost module lists that hold two or more modules of one class."""
    blocks: list[nn.Module] = []
    for child in model.children():
        members = list(child.children()) if isinstance(child, nn.ModuleList) else []
        alike = len(members) > 1 and len({type(member) for member in members}) == 1
        if alike and any(True for _ in members[0].parameters()):
            blocks += members
        else:
            blocks += _repeated_blocks(child)
    return blocks
