"""Run by torchrun: accumulates on several processes, and prints how far off each rank is.

`ranks.py CASE` with CASE one of ddp, fsdp; rank 0 prints one JSON line per plan and loss.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
import plain_sums

import bsprof
from bsprof.accumulation.plan_file import plan_of_pieces

PLANS = {
    1: [[[4, 4]], [[5, 3, 1]]],
    2: [[[3, 3], [3, 3]], [[5, 2], [4, 2]], [[4, 4, 1], [4, 4]]],
    3: [[[2, 2], [2, 2], [2, 2]], [[3, 3, 1], [3, 2, 1], [3, 2, 1]]],
}


def wrapped(kind: str) -> nn.Module:
    model = plain_sums.tagger()
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model) if dist.get_world_size() > 1 else model
    from torch.distributed.fsdp import fully_shard

    fully_shard(model.inner)
    fully_shard(model)
    return model


def full_gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    found = {}
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        assert gradient is not None, name
        whole = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
        found[name.removeprefix("module.")] = whole.detach().clone()
    return found


def main(kind: str) -> None:
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for pieces in PLANS[world_size]:
        if kind == "fsdp" and len({len(rank) for rank in pieces}) > 1:
            continue
        for weigh, loss in plain_sums.LOSSES.items():
            plan = plan_of_pieces(pieces)
            whole = plain_sums.batch(plan.effective_batch_size)
            wanted = plain_sums.whole_gradients(loss, whole)
            model = wrapped(kind)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            step = bsprof.accumulate(plan, model, optimizer, loss=loss, weigh=weigh)
            # Twice, so that what a first window leaves behind would show in the second.
            share = step.gradients(whole)
            share = step.gradients(whole)
            off = plain_sums.relative_difference(full_gradients(model), wanted)
            value = share.detach().clone()
            dist.all_reduce(value)
            off_loss = abs(float(value - loss(plain_sums.tagger(), whole).detach()))
            partial = partial_difference(step, loss, model, rank, world_size)
            worst = torch.tensor([off, off_loss, partial], dtype=torch.float64)
            dist.all_reduce(worst, dist.ReduceOp.MAX)
            if rank == 0:
                line = {"pieces": pieces, "weigh": weigh, "off": worst.tolist()}
                sys.stdout.write(json.dumps(line) + "\n")
    if kind == "ddp":
        report = {"empty": empty_rank(world_size), "noise": noise(world_size)}
        if rank == 0:
            sys.stdout.write(json.dumps(report) + "\n")
    dist.destroy_process_group()


def partial_difference(step, loss, model, rank: int, world_size: int) -> float:
    """An epoch's last window: other sizes on every rank."""
    sizes = [4 + place for place in range(world_size)]
    whole = plain_sums.batch(sum(sizes), seed=5)
    start = sum(sizes[:rank])
    own = {k: v[start : start + sizes[rank]] for k, v in whole.items()}
    step.gradients(own, partial=True)
    wanted = plain_sums.whole_gradients(loss, whole)
    return plain_sums.relative_difference(full_gradients(model), wanted)


def empty_rank(world_size: int) -> float:
    """The last rank's samples count no token at all, and no rank hangs or yields NaN."""
    plan = plan_of_pieces([[2, 2]] * world_size)
    whole = plain_sums.batch(plan.effective_batch_size)
    if world_size > 1:
        whole["labels"][-4:] = plain_sums.IGNORED
    else:
        whole["labels"][-2:] = plain_sums.IGNORED
    model = wrapped("ddp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = bsprof.accumulate(plan, model, optimizer, loss=plain_sums.token_mean, weigh="tokens")
    step.gradients(whole)
    wanted = plain_sums.whole_gradients(plain_sums.token_mean, whole)
    return plain_sums.relative_difference(full_gradients(model), wanted)


def noise(world_size: int) -> float:
    """Relative difference of the watched variance from that of one process."""
    plan = plan_of_pieces([[3, 2], [2, 2], [2, 1]][:world_size])
    whole = plain_sums.batch(plan.effective_batch_size)
    model = wrapped("ddp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    watch = bsprof.Watch(noise_scale=True)
    step = bsprof.accumulate(plan, model, optimizer, loss=plain_sums.sample_mean, watch=watch)
    for _ in range(70):
        step(whole)
    step.flush()
    sizes = [size for own in plan.pieces_by_rank for size in own]
    squares, start = [], 0
    for size in sizes:
        piece = {k: v[start : start + size] for k, v in whole.items()}
        found = plain_sums.whole_gradients(plain_sums.sample_mean, piece)
        squares.append(sum(float(g.square().sum()) for g in found.values()))
        start += size
    found = plain_sums.whole_gradients(plain_sums.sample_mean, whole)
    total = sum(float(g.square().sum()) for g in found.values())
    batch = sum(sizes)
    local = sum(n / batch * s for n, s in zip(sizes, squares, strict=True))
    variance = batch * (local - total) / (len(sizes) - 1)
    assert step.watcher.newest is not None
    assert step.watcher.newest.gradient_variance is not None
    return abs(step.watcher.newest.gradient_variance / variance - 1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
