"""Runs a plan: one call per update in the user's own loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bsprof.accumulation.boundary import Boundary
from bsprof.accumulation.micro_norms import MicroNorms
from bsprof.accumulation.plan_file import PlanFile
from bsprof.accumulation.splitting import Split, batch_size, part_of, split_batch, to_device
from bsprof.accumulation.synchronising import Synchronising
from bsprof.accumulation.watch import Watch, Watcher
from bsprof.accumulation.weights import (
    Weigh,
    Weight,
    counted,
    sum_over_ranks,
    weighted,
    weights_of,
)
from bsprof.errors import UsageError

Loss = Callable[[nn.Module, Any], Tensor]
"""`loss(model, piece)`: forward pass and loss, the mean over what is weighed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What one update did.

    Attributes:
        step: Its number, from 1; skipped ones count.
        loss: This rank's share of the whole batch's loss, on the device: the shares of all ranks
            add up to it; on one rank it is the loss.
        gradient_norm: Of the whole gradient before clipping, on the device; None where it is
            neither clipped nor watched.
        stepped: Whether the optimizer stepped; a gradient scaler may skip it.
    """

    step: int
    loss: Tensor
    gradient_norm: Tensor | None
    stepped: bool


class Accumulator:
    """A plan, a model and an optimizer, ready to run updates; made by `bsprof.accumulate`.

    Attributes:
        plan: What is run.
        rank: Of this process.
        pieces: Sizes of the pieces that this rank runs, in order.
        share: Samples of this rank per update.
        step: Updates done.
    """

    def __init__(
        self,
        plan: PlanFile,
        model: nn.Module,
        *,
        loss: Loss,
        boundary: Boundary,
        synchronising: Synchronising,
        rank: int,
        weigh: Weigh,
        count: Callable[[Any], Any] | None,
        size: Callable[[Any], int] | None,
        split: Split | None,
        device: torch.device,
        watch: Watch | None,
    ) -> None:
        self.plan = plan
        self.rank = rank
        self.pieces = plan.of_rank(rank)
        self.share = sum(self.pieces)
        self.step = 0
        self._model = model
        self._loss = loss
        self._boundary = boundary
        self._synchronising = synchronising
        self._weigh = weigh
        self._count = count
        self._size = size or batch_size
        self._split = split
        self._device = device
        self._several = plan.world_size > 1
        self._watcher = None if watch is None else Watcher(watch, rank, plan.world_size)
        self._norms = MicroNorms(boundary.parameters) if watch and watch.noise_scale else None

    def __call__(self, batch: Any, *, partial: bool = False) -> Update:
        """One update: gradients of all pieces, then the step; see `gradients`."""
        loss = self.gradients(batch, partial=partial)
        return self.finish(loss)

    def gradients(self, batch: Any, *, partial: bool = False) -> Tensor:
        """Leave the gradient of the whole batch, all ranks, on the parameters; no step.

        Args:
            batch: This rank's samples of an update (`share` of them), or those of all ranks, of
                which this rank takes its part. Best on the CPU: pieces are moved to the device
                one by one.
            partial: Whether it is an epoch's last window, of any size: every rank calls it so,
                with at least one sample, and weights follow what there is.

        Returns:
            This rank's share of the loss, see `Update`.

        Raises:
            UsageError: a batch of another size, or one that cannot be cut.
        """
        own, sizes = self._sizes(batch, partial)
        pieces = split_batch(own, sizes, size=sum(sizes), split=self._split)
        return self.gradients_of_pieces(pieces, sizes, partial=partial)

    def gradients_of_pieces(
        self, pieces: Sequence[Any], sizes: Sequence[int] | None = None, *, partial: bool = False
    ) -> Tensor:
        """As `gradients`, of batches that are cut already: this rank's pieces, in order.

        Args:
            pieces: As many as there are in a window; `pieces` of the plan unless `partial`.
            sizes: Their samples; None reads them.
            partial: As in `gradients`.
        """
        if sizes is None:
            sizes = tuple(self._size(piece) for piece in pieces)
            if not partial and sizes != self.pieces:
                raise UsageError(
                    f"the plan has other pieces for rank {self.rank}",
                    found=f"sizes {_shown(sizes)}, planned {_shown(self.pieces)}",
                    next_step="give the planned sizes, or partial=True for the last window",
                )
        counts = self._counts(pieces, sizes)
        weights = weights_of(counts, self._total(counts, partial), self._synchronising.factor)
        self._boundary.zero_grad()
        running = self._to_run(counts)
        share: Tensor | None = None
        for place in running:
            with self._synchronising.piece(last=place == running[-1]):
                loss = self._micro_step(
                    to_device(pieces[place], self._device), weights[place], counts[place]
                )
            if self._norms is not None:
                self._norms.add(
                    weight=weights[place],
                    factor=self._synchronising.factor,
                    scale=self._boundary.loss_scale(self._device),
                    samples=sizes[place],
                )
            share = loss if share is None else share + loss
        assert share is not None
        return share / self._synchronising.factor

    def finish(self, loss: Tensor) -> Update:
        """The step after `gradients`: unscale, clip, optimizer, scaler, scheduler, once each."""
        stepped, norm = self._boundary.step()
        self.step += 1
        if self._watcher is not None:
            self._watcher.see(
                step=self.step,
                loss=loss,
                norm=norm,
                sums=None if self._norms is None else self._norms.take(),
                pieces=len(self.pieces),
                stepped=stepped,
            )
        self._boundary.zero_grad()
        return Update(step=self.step, loss=loss, gradient_norm=norm, stepped=stepped)

    def saved(self) -> None:
        """Say that a checkpoint of the present update was written, for the way back."""
        self._watched().saved(self.step)

    def flush(self) -> None:
        """Tell and log what the last update showed; without it, the next update does."""
        self._watched().flush()

    @property
    def watcher(self) -> Watcher:
        """The watch: its newest numbers, the last good step, the checkpoint to go back to."""
        return self._watched()

    def state_dict(self) -> dict[str, Any]:
        """Updates done and the plan they were done by, for a checkpoint."""
        return {
            "plan": self.plan.state(),
            "weigh": self._weigh.value,
            "step": self.step,
            "watch": None if self._watcher is None else self._watcher.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint of the same plan.

        Raises:
            UsageError: another plan, or another number of ranks: what would change is listed.
        """
        changes = self.plan.differences(state["plan"])
        if state["weigh"] != self._weigh.value:
            changes.append(f"weights: by {state['weigh']} -> by {self._weigh.value}")
        if changes:
            raise UsageError(
                "the checkpoint was written under another plan",
                found="\n".join(changes),
                next_step="go on with its plan; or set `step` by hand, and look after learning "
                "rate, schedule and warm-up, which belong to the samples per update",
            )
        self.step = int(state["step"])
        if self._watcher is not None and state.get("watch") is not None:
            self._watcher.load_state(state["watch"])

    def _sizes(self, batch: Any, partial: bool) -> tuple[Any, tuple[int, ...]]:
        """This rank's samples, and how they are cut."""
        found = self._size(batch)
        if partial:
            return batch, self._partial_sizes(found)
        if found == self.share:
            return batch, self.pieces
        if found == self.plan.effective_batch_size:
            start = self.plan.offset_of(self.rank)
            stop = start + self.share
            return part_of(batch, start, stop, size=found, split=self._split), self.pieces
        raise UsageError(
            f"the batch is not one of the plan: {found} samples",
            found=f"rank {self.rank} takes {self.share}, all ranks "
            f"{self.plan.effective_batch_size}",
            next_step="give partial=True for the last window of an epoch, or `size=` where the "
            "leading dimension is not the samples",
        )

    def _partial_sizes(self, samples: int) -> tuple[int, ...]:
        if samples < 1:
            raise UsageError(
                f"rank {self.rank} has no sample in the last window",
                next_step="leave the window out on all ranks",
            )
        steps = -(-samples // self.plan.micro_batch_size)
        if self._synchronising.same_count_needed and self._several:
            # FSDP2 gathers weights in every micro-step, on all ranks together.
            # Both numbers go round, so that all ranks refuse together and none waits for another.
            most = torch.tensor([steps, -samples], device=self._device)
            dist.all_reduce(most, dist.ReduceOp.MAX)
            steps, fewest = int(most[0]), -int(most[1])
            if fewest < steps:
                raise UsageError(
                    "a rank has fewer samples in the last window than others have micro-steps",
                    found=f"{fewest} samples, {steps} micro-steps",
                    next_step="share the window evenly among the ranks, or leave it out",
                )
        least, more = divmod(samples, steps)
        return (least + 1,) * more + (least,) * (steps - more)

    def _counts(self, pieces: Sequence[Any], sizes: Sequence[int]) -> Sequence[int]:
        if self._weigh is Weigh.SAMPLES:
            return sizes
        if self._weigh is Weigh.EQUAL:
            return [1] * len(pieces)
        assert self._count is not None
        return counted(pieces, self._count)

    def _total(self, counts: Sequence[int], partial: bool) -> int | Tensor:
        """What all pieces of all ranks count together."""
        if not self._several:
            return sum(counts)
        if self._weigh is Weigh.SAMPLES and not partial:
            return self.plan.effective_batch_size
        return sum_over_ranks(sum(counts), self._device)

    def _to_run(self, counts: Sequence[int]) -> list[int]:
        """Places of the pieces to run: one that counts nothing adds nothing, and is left out.

        Where ranks run together, each still runs one, or, with FSDP2, all.
        """
        if self._synchronising.same_count_needed:
            return list(range(len(counts)))
        return [place for place, count in enumerate(counts) if count] or [len(counts) - 1]

    def _micro_step(self, piece: Any, weight: Weight, count: int) -> Tensor:
        """Forward and backward of one piece; its weighted loss, detached."""
        loss = self._loss(self._model, piece)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise UsageError(
                "the loss must be one number, as a tensor",
                found=f"{type(loss).__name__}"
                + (f" of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else ""),
                next_step="return the mean over the piece from loss(model, piece)",
            )
        loss = weighted(loss, weight) if count else self._nothing(loss)
        self._boundary.scale(loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _nothing(self, loss: Tensor) -> Tensor:
        """A loss of zero for a piece that counts nothing, whose own mean is 0/0."""
        if self._synchronising.is_sharded or getattr(self._model, "find_unused_parameters", False):
            return loss.nan_to_num() * 0.0
        trained = [p for p in self._model.parameters() if p.requires_grad]
        return torch.stack([p.flatten()[:1].sum() * 0.0 for p in trained]).sum()

    def _watched(self) -> Watcher:
        if self._watcher is None:
            raise UsageError("nothing is watched", next_step="give watch=bsprof.Watch()")
        return self._watcher


def _shown(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes[:8])) + (", ..." if len(sizes) > 8 else "")
