"""Batch normalisation where an update is cut into pieces."""

from __future__ import annotations

from collections.abc import Iterator

from bsprof.recommend.advice.scaling import same_horizon
from bsprof.recommend.reasons import Ground
from bsprof.records import Note

_MOMENTUM = 0.1  # torch's default
_SMALL = 16


def on_batch_norm(ground: Ground) -> Iterator[Note]:
    """The momentum that keeps the averaging horizon, and when to freeze or synchronise."""
    facts, steps = ground.profile.facts, ground.plan.accumulation_steps
    if facts is None or not facts.batch_norm_modules:
        return
    ranks, size = ground.target.world_size, ground.plan.micro_batch_size
    if steps > 1:
        yield Note(
            code="batch-norm-momentum",
            message=f"Running statistics are averaged once per piece, {steps:,} times per update: "
            f"momentum {same_horizon(_MOMENTUM, steps):.3g} instead of {_MOMENTUM} keeps the "
            "averaging horizon in updates (1 - (1 - m) ** (1 / pieces)). That concerns evaluation; "
            "training still sees the statistics of each piece.",
        )
    if steps > 1 or ranks > 1:
        across = (
            f" torch.nn.SyncBatchNorm joins the {ranks:,} ranks' pieces ({ranks * size:,} samples),"
            " and no pieces that follow each other."
            if ranks > 1
            else ""
        )
        small = f" {size:,} samples are few for statistics." if size < _SMALL else ""
        yield Note(
            code="batch-norm-freeze",
            message="To be independent of the split: keep the modules in evaluation mode, which "
            "suits fine-tuning, as nothing is learnt about the statistics then; or use group or "
            f"layer normalisation.{across}{small}",
            hint="`bsprof check` shows how far the gradient is from the whole batch's",
        )
