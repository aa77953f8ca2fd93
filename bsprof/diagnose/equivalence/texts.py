"""The findings in words: what was seen, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from bsprof.diagnose.findings import Cause, Finding


def dropout(modules: tuple[str, ...], *, separable: bool) -> Finding:
    """Randomness in the forward pass or the loss."""
    if separable:
        return Finding(
            cause=Cause.DROPOUT,
            message="dropout: pieces draw other masks than the whole batch, as two runs of the "
            "whole batch do; what else differs was looked for with dropout off",
            fix="nothing needs mending if this is all: the gradients are equal on average; "
            "`--allow dropout` passes it",
            modules=modules,
        )
    return Finding(
        cause=Cause.DROPOUT,
        message="dropout, noise or sampling: the same batch has another gradient with another "
        "seed, and it could not be switched off; other causes cannot be told apart from it",
        fix="give the model or the loss an option that switches its randomness off, for the check",
        modules=modules,
    )


def state(*, in_model: bool) -> Finding:
    """A pass that changes the next one."""
    where = "the model" if in_model else "the loss function, or random numbers of its own"
    return Finding(
        cause=Cause.STATE,
        message="state in the forward pass: the same piece has another gradient the second time; "
        f"what changes lies in {where}",
        fix="move what changes (a counter, a queue, a running mean that is used in training) out "
        "of the forward pass, to be updated once per optimizer step",
    )


def frequency(modules: tuple[str, ...]) -> Finding:
    """Embeddings with `scale_grad_by_freq`."""
    return Finding(
        cause=Cause.FREQUENCY,
        message="scale_grad_by_freq: gradients are divided by how often a row occurs in the "
        "micro-batch, not in the whole batch",
        fix="build the embedding without scale_grad_by_freq",
        modules=modules,
    )


def batch_norm(modules: tuple[str, ...]) -> Finding:
    """Batch statistics."""
    return Finding(
        cause=Cause.BATCH_NORM,
        message="BatchNorm: every piece is normalised by its own mean and variance, and the "
        "running statistics move once per piece",
        fix="accept that statistics see the micro-batch, and keep it from being small; or take "
        "GroupNorm or LayerNorm; or freeze the statistics in fine-tuning (module.eval()). "
        "SyncBatchNorm joins ranks, not pieces",
        modules=modules,
    )


def in_batch(place: str | None) -> Finding:
    """Samples that meet each other."""
    if place is None:
        where = "in the loss: in-batch negatives, a contrastive or ranking loss, a ratio of sums"
        modules: tuple[str, ...] = ()
    else:
        where = f"in the module {place or 'itself'}"
        modules = (place,)
    return Finding(
        cause=Cause.IN_BATCH,
        message="in-batch dependence: what a sample contributes depends on which others are in "
        f"its micro-batch, first {where}",
        fix="accumulation cannot give this gradient: cache the embeddings of all pieces first "
        "(GradCache, arXiv 2101.06983), gather negatives over ranks, or take a larger micro-batch",
        modules=modules,
    )


def unequal_pieces(sizes: Sequence[int]) -> Finding:
    """Equal weights for pieces of different sizes."""
    return Finding(
        cause=Cause.UNEQUAL_PIECES,
        message=f"unequal pieces: pieces of {_list(sizes)} samples count the same, so a sample of "
        "a small piece counts more",
        fix="weigh each piece by its samples over those of the update, as bsprof.accumulate does; "
        "or drop the last window",
    )


def samples_not_tokens() -> Finding:
    """Weights by tokens for a loss that averages over samples."""
    return Finding(
        cause=Cause.TOKEN_MEAN,
        message="weights by tokens: the pieces are weighed by what `count` says, and the loss is "
        "a mean over samples",
        fix="weigh by samples, or let the loss divide by what `count` counts",
    )


def token_mean(found: Sequence[float], weights: Sequence[float], *, has_count: bool) -> Finding:
    """A mean over something of which pieces have different numbers."""
    count = (
        "weigh=`tokens` uses the workload's count"
        if has_count
        else "give the Workload (or bsprof.accumulate) a `count` of those tokens"
    )
    return Finding(
        cause=Cause.TOKEN_MEAN,
        message="token-mean loss: the loss averages over something that the pieces have different "
        f"numbers of; their right weights here are {_shares(found)}, and they were weighed "
        f"{_shares(weights)}",
        fix=f"weigh each piece by its tokens over those of all pieces of all ranks: {count}",
    )


def sum_loss(weight: float | None) -> Finding:
    """A loss that does not divide by how much it sums over."""
    seen = (
        "the whole batch's gradient is the plain sum of the pieces'"
        if weight is not None and abs(weight - 1) < 1e-5
        else "the pieces' weights do not add up to 1"
    )
    return Finding(
        cause=Cause.SUM_LOSS,
        message=f"a loss that ignores the count: {seen}, so accumulation divides by the number of "
        "pieces what was never multiplied",
        fix="return the mean over the batch (reduction='mean'), or divide by the batch's own size",
    )


def sparse(modules: tuple[str, ...]) -> Finding:
    """Sparse gradients: equal, with other costs."""
    return Finding(
        cause=Cause.SPARSE,
        counts=False,
        message="sparse gradients: their sum over pieces is the whole batch's, but it keeps the "
        "rows of every piece until it is coalesced, so memory grows with the pieces, and clipping "
        "the gradient's norm fails",
        fix="build the embedding with sparse=False, or coalesce before the step and do not clip",
        modules=modules,
    )


def low_precision(kind: str, steps: int, times: float) -> Finding:
    """Sums in 16 bits."""
    return Finding(
        cause=Cause.LOW_PRECISION,
        message=f"accumulation in {kind}: adding {steps} pieces in the gradients' own type costs "
        f"{times:.1f} times the error of rounding their sum once; small pieces get lost",
        fix="keep weights and gradients in fp32 under autocast (amp-bf16), accumulate in fp32 "
        "buffers, or take fewer pieces",
    )


def rounding(kind: str, apart: float, own: float) -> Finding:
    """More rounding by pieces than by the whole batch."""
    return Finding(
        cause=Cause.LOW_PRECISION,
        message=f"rounding in {kind}: the pieces' gradient is {apart:.2g} off the exact one, that "
        f"of the whole batch {own:.2g}",
        fix="compare in a higher precision, and look for a loss or a norm computed in 16 bits",
    )


def unknown() -> Finding:
    """Nothing explains it."""
    return Finding(
        cause=Cause.UNKNOWN,
        message="the gradients differ, and none of the known causes explains it",
        fix="look at the parameters that differ most; report it with the model, if you can",
    )


def _shares(weights: Sequence[float]) -> str:
    return ", ".join(f"{weight:.3g}" for weight in weights[:6]) + (
        ", ..." if len(weights) > 6 else ""
    )


def _list(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes[:6])) + (", ..." if len(sizes) > 6 else "")
