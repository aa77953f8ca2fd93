"""What the user hands over to be measured: a model, its data, its loss, its optimizer.

This module must not import torch: `from bsprof import Workload` stays cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One training (or inference) job, as callables; bsprof owns the loop around them.

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
            that `--activation-checkpointing` may recompute; None looks for a `nn.ModuleList` of
            like modules.
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
