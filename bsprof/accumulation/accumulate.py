"""`bsprof.accumulate`: from a plan, a model and an optimizer to one call per update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsprof.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.amp.grad_scaler import GradScaler
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from bsprof.accumulation.accumulator import Accumulator, Loss
    from bsprof.accumulation.plan_file import PlanFile
    from bsprof.accumulation.splitting import Split
    from bsprof.accumulation.watch import Watch
    from bsprof.records import Plan, Recommendation


def accumulate(
    plan: PlanFile | Plan | Recommendation | str | Path,
    model: nn.Module,
    optimizer: Optimizer,
    *,
    loss: Loss,
    weigh: str = "samples",
    count: Callable[[Any], Any] | None = None,
    scheduler: LRScheduler | Sequence[LRScheduler] | None = None,
    scaler: GradScaler | None = None,
    clip_norm: float | None = None,
    size: Callable[[Any], int] | None = None,
    split: Split | None = None,
    device: torch.device | str | None = None,
    watch: Watch | None = None,
) -> Accumulator:
    """Run a plan in a loop of one's own: the gradient is the whole batch's, exactly.

    Example:
        ::

            step = bsprof.accumulate("plan.json", model, optimizer, loss=loss, clip_norm=1.0)
            for batch in DataLoader(dataset, batch_size=step.share, shuffle=True):
                step(batch)

    A call cuts the batch into this rank's pieces, weighs each loss by its part of what all ranks
    average over, lets gradients travel between ranks with the last piece only
    (`DistributedDataParallel`, FSDP2), and at the end unscales, clips and steps once. Pieces are
    moved to the device one by one. No trainer: data, evaluation and checkpoints stay the loop's.

    Args:
        plan: What `recommend_plan` or `load_plan` returned, or the path of a plan file.
        model: Plain on one rank, wrapped or sharded on several.
        optimizer: Over the model's parameters.
        loss: `loss(model, piece)` runs the forward pass (under autocast, where that is wanted)
            and returns the mean over what `weigh` says.
        weigh: `samples`; `tokens`, where the loss averages over what `count` counts; or `equal`,
            which is what most trainers do and exact for pieces of equal counts only.
        count: `count(batch)`: the tokens that the loss averages over. None counts `labels` other
            than -100, else `attention_mask`, else `input_ids`.
        scheduler: Stepped once per optimizer step; its length is in optimizer steps.
        scaler: Of `torch.amp`; updates that it skips step no scheduler.
        clip_norm: Largest norm of the whole gradient.
        size: Samples of a batch; None reads the leading dimension of its first tensor.
        split: `split(batch, start, stop)`; None cuts every tensor along its leading dimension.
        device: Where pieces are moved; None is where the model's first parameter lies.
        watch: Gradient norm, variance, noise scale, drift and a log; None watches nothing.

    Raises:
        PlanFormatError: the file is no plan.
        UsageError: a plan for another number of ranks (what would change is listed), a model
            whose gradients nobody synchronises, options that exclude each other.
    """
    import torch

    from bsprof.accumulation.accumulator import Accumulator
    from bsprof.accumulation.boundary import Boundary
    from bsprof.accumulation.plan_file import as_plan_file
    from bsprof.accumulation.synchronising import Synchronising, run_size
    from bsprof.accumulation.weights import Weigh
    from bsprof.workloads.adapters.tokens import loss_tokens

    if weigh not in list(Weigh):
        raise UsageError(
            f"cannot weigh pieces by {weigh!r}", next_step=f"use one of {', '.join(Weigh)}"
        )
    if count is not None and weigh != Weigh.TOKENS:
        raise UsageError(
            f"count has no effect with weigh={weigh!r}", next_step="give weigh='tokens'"
        )
    found = as_plan_file(plan)
    rank, world_size = run_size()
    found.check_world_size(world_size)
    synchronising = Synchronising(model, world_size)
    if synchronising.same_count_needed and len({kind.steps for kind in found.pieces}) > 1:
        raise UsageError(
            "FSDP2 needs the same number of micro-steps on every rank",
            found=f"{', '.join(str(kind.steps) for kind in found.pieces)}",
            next_step="choose a larger target, or a smaller world size",
        )
    if watch is not None and watch.noise_scale and synchronising.is_sharded:
        raise UsageError(
            "the noise scale cannot be watched with FSDP2: no rank sees a piece's whole gradient",
            next_step="watch without noise_scale, or run `bsprof noise`",
        )
    first = next(iter(model.parameters()), None)
    place = torch.device(device) if device is not None else None
    return Accumulator(
        found,
        model,
        loss=loss,
        boundary=Boundary(
            optimizer,
            scheduler=scheduler,
            scaler=scaler,
            clip_norm=clip_norm,
            needs_norm=watch is not None,
        ),
        synchronising=synchronising,
        rank=rank,
        weigh=Weigh(weigh),
        count=(count or loss_tokens) if weigh == Weigh.TOKENS else None,
        size=size,
        split=split,
        device=place or (first.device if first is not None else torch.device("cpu")),
        watch=watch,
    )
