"""Options of a sweep that exclude each other: flags win over configuration, else it is an error."""

from __future__ import annotations

import typer

from bsprof.cli.options import beaten
from bsprof.errors import UsageError
from bsprof.records import SweepPlan, WorkloadSpec

_TRAINING_ONLY = (
    "optimizer",
    "optimizer_option",
    "clip_norm",
    "activation_checkpointing",
    "lora",
    "freeze",
    "ema",
)
_PAIRS = (
    ("micro_batch_sizes", "max_micro_batch_size"),
    ("micro_batch_sizes", "find_max"),
    ("resume", "force"),
)


def giving_way(ctx: typer.Context) -> frozenset[str]:
    """Parameters from the configuration that a flag excludes; they are as good as not given."""
    pairs = [(one, other) for one, other in _PAIRS if ctx.params[one] and ctx.params[other]]
    if ctx.params["mode"] == "infer":
        pairs += [("mode", name) for name in _TRAINING_ONLY]
    return frozenset[str]().union(*(beaten(ctx, (one,), (other,)) for one, other in pairs))


def refuse_training_options(spec: WorkloadSpec, optimizer: str | None) -> None:
    """Refuse what means nothing in inference.

    Raises:
        UsageError: an option of training was given.
    """
    given = {
        "--optimizer": optimizer is not None,
        "--optimizer-option": bool(spec.optimizer_options),
        "--clip-norm": spec.clip_norm is not None,
        "--activation-checkpointing": spec.activation_checkpointing != "none",
        "--lora": spec.lora_rank is not None,
        "--freeze": bool(spec.freeze),
        "--ema": spec.ema,
    }
    for option, is_given in given.items():
        if is_given:
            raise UsageError(
                f"{option} has no effect with --mode infer", next_step=f"leave {option} out"
            )


def refuse_contradictions(plan: SweepPlan) -> None:
    """Refuse options of which one would be ignored.

    Raises:
        UsageError: two of them, or a value that cannot be.
    """
    if plan.micro_batch_sizes and plan.max_micro_batch_size is not None:
        raise UsageError(
            "--micro-batch-sizes and --max-micro-batch-size exclude each other",
            next_step="name the sizes, or cap the adaptive schedule",
        )
    if plan.micro_batch_sizes and plan.find_max:
        raise UsageError(
            "--micro-batch-sizes and --find-max exclude each other",
            next_step="name the sizes, or let the adaptive schedule find the largest",
        )
    if plan.relative_error <= 0:
        raise UsageError("--relative-error must be above 0", next_step="write it like 2%")
