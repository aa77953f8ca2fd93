"""What the user hands over to be measured: a model, its data, its loss, its optimizer.

This module must not import torch: `from bsprof import Workload` stays cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bsprof.records import Note
from bsprof.workloads.signatures import accepts, check_call

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One training (or inference) job, as callables; bsprof owns the loop around them.

    What people already have becomes one by `from_batches` (a data set or a loader), `from_step`
    (a step function), `from_lightning` and `from_trainer`. Fields that these do not ask for are
    set with `dataclasses.replace`.

    Example:
        A file `train.py`, measured by `bsprof sweep --model train.py:workload`::

            def workload() -> Workload:
                return Workload(
                    model=lambda: nn.Linear(128, 10),
                    batch=lambda b, device: (
                        torch.randn(b, 128, device=device),
                        torch.randint(10, (b,), device=device),
                    ),
                    loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]),
                )

    Attributes:
        model: Makes the model, on the CPU or anywhere; bsprof moves it.
        batch: `batch(micro_batch_size, device)` makes a fresh batch on that device. Random data:
            zeros are faster than real data on some devices.
        loss: `loss(model, batch)` runs the forward pass and returns one number as a tensor, the
            mean over the batch.
        optimizer: `optimizer(params)` makes the optimizer over the trainable parameters; None
            takes the one of the workload spec (`--optimizer`).
        count: `count(batch)` is the number of tokens the loss averages over. Where
            `tokens_per_sample` is not given it is read from it, in a batch of one sample.
        size: `size(batch)` reads the number of samples back from a batch; None reads the leading
            dimension of the first tensor in it.
        micro_step: `micro_step(model, batch)` runs forward *and* backward itself, in place of
            `loss`; where it has a parameter `scale`, its loss is to be multiplied by it. It runs
            under no autocast and no gradient scaler. Training only.
        dataset_size: Samples in the data set: no micro-batch is larger; None when unknown.
        tokens_per_sample: Tokens in a sample; None where samples have no tokens, or where
            `count` tells.
        uses_seq_len: Whether `--seq-len` had an effect on this workload. A factory that has a
            parameter `seq_len` need not say so; likewise the two below.
        uses_image_size: Whether `--image-size` had an effect.
        uses_attention: Whether `--attention` had an effect.
        checkpoint_blocks: `checkpoint_blocks(model)` lists the modules, in the order they run,
            that `--activation-checkpointing` may recompute; None takes the blocks that the
            model repeats (`workloads.checkpointing.repeated_blocks`).
        notes: Remarks that travel with every profile of this workload.

    Raises:
        WorkloadError: a function does not take what it will be called with.
    """

    model: Callable[[], nn.Module]
    batch: Callable[[int, torch.device], Any]
    loss: Callable[[nn.Module, Any], Tensor]
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None
    count: Callable[[Any], int] | None = None
    size: Callable[[Any], int] | None = None
    micro_step: Callable[..., Tensor | None] | None = None
    dataset_size: int | None = None
    tokens_per_sample: int | None = None
    uses_seq_len: bool = False
    uses_image_size: bool = False
    uses_attention: bool = False
    checkpoint_blocks: Callable[[nn.Module], Sequence[nn.Module]] | None = None
    notes: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        """Look at the signatures: a wrong one is best told before anything is built."""
        check_call("model", self.model, ())
        check_call("batch", self.batch, ("micro_batch_size", "device"))
        check_call("loss", self.loss, ("model", "batch"))
        check_call("optimizer", self.optimizer, ("params",))
        check_call("count", self.count, ("batch",))
        check_call("size", self.size, ("batch",))
        check_call("checkpoint_blocks", self.checkpoint_blocks, ("model",))
        if self.micro_step is not None:
            scale = ("scale",) if accepts(self.micro_step, "scale") else ()
            check_call("micro_step", self.micro_step, ("model", "batch"), named=scale)

    @staticmethod
    def from_batches(
        model: nn.Module | Callable[[], nn.Module],
        data: Any,
        *,
        loss: Callable[[nn.Module, Any], Tensor],
        lengths: str = "longest",
        length: Callable[[Any], int] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        count: Callable[[Any], int] | None = None,
        size: Callable[[Any], int] | None = None,
        dataset_size: int | None = None,
        examined: int = 512,
        seed: int = 0,
    ) -> Workload:
        """A workload whose batches are made of the user's own samples, moved to the device.

        Example:
            Batches as hard as they get, from the loader of the training script::

                Workload.from_batches(
                    MyModel, train_loader, loss=lambda model, batch: model(**batch).loss
                )

        A batch of b samples, by `lengths`:

        - `"longest"`: the b longest samples of those examined, the worst case: what fits then fits
          with every batch, and times are those of the longest batches.
        - `"p95"`, or another percentile: the b samples whose lengths end at that percentile.
        - `"histogram"`: b samples at random, anew for every batch (from an iterable, the next b).
          Lengths are mixed as in training, so times are nearer to it; but the memory measured is
          that of the batches drawn, a longer one takes more, and neighbouring sizes differ by
          chance too. The profile carries a note that says so.

        The first two read samples before anything is measured: `examined` of them at random, all
        where they are not many more, the first 64 where these are alike.

        Args:
            model: A function that makes the model, or the model itself.
            data: A `DataLoader`, whose data set and `collate_fn` are taken (its batch size, order
                and workers play no part), a data set of single samples, an iterable of them, or a
                function that returns one of these.
            loss: As in `Workload`.
            lengths: Which samples make a batch, see above.
            length: `length(sample)`; None counts the elements of a sample's first tensor or
                sequence (of its `input_ids` where it has them).
            collate: `collate(samples)` makes a batch; None takes the loader's own, or PyTorch's
                default, which wants samples of one shape.
            optimizer: As in `Workload`.
            count: As in `Workload`; None counts `labels` (b, n) other than -100, else
                `attention_mask`, else `input_ids`, where a batch has them. `tokens_per_sample` is
                then the mean of the samples examined, without padding.
            size: As in `Workload`.
            dataset_size: As in `Workload`; None asks the data set for its length.
            examined: How many samples to look at for their lengths (those of an iterable are kept
                in memory).
            seed: Of all that is drawn.

        Raises:
            WorkloadError: no data set of samples, an empty one, or `lengths` that cannot be read.
        """
        from bsprof.workloads.adapters.drawing import Choice
        from bsprof.workloads.adapters.real_batches import from_batches

        return from_batches(
            model,
            data,
            Choice(
                lengths=lengths,
                length=length,
                collate=collate,
                count=count,
                examined=examined,
                seed=seed,
            ),
            loss=loss,
            optimizer=optimizer,
            size=size,
            dataset_size=dataset_size,
        )

    @staticmethod
    def from_step(
        step: Callable[..., Tensor | None],
        *,
        model: nn.Module | Callable[[], nn.Module],
        batch: Callable[[int, torch.device], Any],
        loss: Callable[[nn.Module, Any], Tensor] | None = None,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        count: Callable[[Any], int] | None = None,
        size: Callable[[Any], int] | None = None,
        dataset_size: int | None = None,
    ) -> Workload:
        """A workload around `step(model, batch)`, which runs forward and backward itself.

        The step leaves its gradients on the parameters; the optimizer is stepped, and gradients
        are cleared, by bsprof. Where it has a parameter `scale`, its loss is to be multiplied by
        it. It runs as it is, under no autocast and no gradient scaler: it enters its own.

        Args:
            step: The user's function.
            model: A function that makes the model, or the model itself.
            batch: As in `Workload`.
            loss: As in `Workload`, for `--mode infer`; None refuses inference.
            optimizer: As in `Workload`; likewise the other three.
            count: As in `Workload`.
            size: As in `Workload`.
            dataset_size: As in `Workload`.

        Raises:
            WorkloadError: `step` takes other arguments; when it runs, that it left no gradient.
        """
        from bsprof.workloads.adapters.steps import from_step

        return from_step(
            step,
            model=model,
            batch=batch,
            loss=loss,
            optimizer=optimizer,
            count=count,
            size=size,
            dataset_size=dataset_size,
        )

    @staticmethod
    def from_lightning(
        module: Any,
        data: Any = None,
        *,
        lengths: str = "longest",
        length: Callable[[Any], int] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        count: Callable[[Any], int] | None = None,
        size: Callable[[Any], int] | None = None,
        dataset_size: int | None = None,
        examined: int = 512,
        seed: int = 0,
    ) -> Workload:
        """A workload of a `LightningModule` (of `lightning` or `pytorch_lightning`).

        A micro-step is `training_step(batch, batch_idx)` and the backward pass of the loss it
        returns, alone or as the entry `loss` of a dict; `--mode infer` runs `validation_step`,
        which then has to return the loss. The optimizer is that of `configure_optimizers`, of
        which there must be one; learning rate schedules play no part. bsprof owns the loop:
        precision, clipping and accumulation are its options, not those of a Trainer.

        Before: `prepare_data`, `setup("fit")` and `configure_model`; once, before the first step,
        the hooks `on_fit_start`, `on_train_start` and `on_train_epoch_start` (in inference those
        of validation). Of the hooks of a batch, those before and during the transfer are part of
        making it, `on_after_batch_transfer` is part of the micro-step. No other hook and no
        callback runs, so what a step gathers until the end of an epoch is never dropped.
        `self.log` does nothing, `batch_idx` is 1.

        A module that optimizes by hand (`automatic_optimization = False`) is refused: its
        `training_step` is no micro-step. Use `from_step`.

        Args:
            module: A function (or class) that makes the module, or the module itself. With a
                function, what is built twice is built afresh.
            data: A `LightningDataModule`, a `DataLoader`, a data set, or a function that returns
                one of these; None takes the module's own `train_dataloader`. The samples are
                those of the training loader in both modes.
            lengths: Which samples make a batch: see `from_batches`, for this and all that follow.
            length: As in `from_batches`.
            collate: As in `from_batches`.
            count: As in `from_batches`.
            size: As in `Workload`.
            dataset_size: As in `from_batches`.
            examined: As in `from_batches`.
            seed: As in `from_batches`.

        Raises:
            WorkloadError: no LightningModule, one that optimizes by hand, or none or several
                loaders; when it is built or run, several optimizers or no loss.
        """
        from bsprof.workloads.adapters.drawing import Choice
        from bsprof.workloads.adapters.lightning_modules import from_lightning

        return from_lightning(
            module,
            data,
            Choice(
                lengths=lengths,
                length=length,
                collate=collate,
                count=count,
                examined=examined,
                seed=seed,
            ),
            size=size,
            dataset_size=dataset_size,
        )

    @staticmethod
    def from_trainer(
        trainer: Any,
        *,
        lengths: str = "longest",
        length: Callable[[Any], int] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        count: Callable[[Any], int] | None = None,
        size: Callable[[Any], int] | None = None,
        dataset_size: int | None = None,
        examined: int = 512,
        seed: int = 0,
    ) -> Workload:
        """A workload of a `transformers.Trainer`.

        Taken over: its model (or `model_init`), the data set and collator of its training loader
        (of the one for evaluation, if it has no training data), `compute_loss` with label
        smoothing and a loss function of one's own, the optimizer it was given or makes by its
        arguments, and activation checkpointing. A micro-step is `compute_loss` and the backward
        pass. The loss is the micro-batch's own mean: `num_items_in_batch`, by which a Trainer
        weighs the tokens of all micro-batches of an update alike, is not passed.

        Batch size, accumulation, `max_grad_norm` and the learning rate's schedule of the
        arguments play no part: bsprof's options do. Mixed precision or `torch_compile` that the
        arguments ask for must be asked of bsprof, too (`--precision`, `--compile`), else the
        first step is refused.

        Args:
            trainer: A Trainer, or a function that makes one. With a function, or a `model_init`,
                what is built twice is built afresh.
            lengths: Which samples make a batch: see `from_batches`, for this and all that follow.
            length: As in `from_batches`.
            collate: As in `from_batches`; None takes the Trainer's collator.
            count: As in `from_batches`.
            size: As in `Workload`.
            dataset_size: As in `from_batches`.
            examined: As in `from_batches`.
            seed: As in `from_batches`.

        Raises:
            WorkloadError: no Trainer, or one that spreads its model over processes.
            UsageError: when it runs, that its settings and the options disagree.
        """
        from bsprof.workloads.adapters.drawing import Choice
        from bsprof.workloads.adapters.huggingface_trainer import from_trainer

        return from_trainer(
            trainer,
            Choice(
                lengths=lengths,
                length=length,
                collate=collate,
                count=count,
                examined=examined,
                seed=seed,
            ),
            size=size,
            dataset_size=dataset_size,
        )
