"""What accumulation changes, and when it is not worth it at all."""

from __future__ import annotations

from collections.abc import Iterator

from bsprof.recommend.advice.situation import Situation
from bsprof.recommend.reasons import Ground
from bsprof.recommend.wording import plural
from bsprof.records import Note, PieceRun
from bsprof.units import format_share


def on_accumulating(ground: Ground, situation: Situation) -> Iterator[Note]:
    """Nothing where an update is one piece on each rank."""
    steps = ground.plan.accumulation_steps
    if steps < 2:
        return
    if ground.profile.workload.clip_norm is not None:
        yield Note(
            code="clip-at-boundary",
            message="Clip once, after the last piece and after unscaling: clipping pieces is "
            "another gradient. The norm has a part from noise that shrinks with the batch, "
            "E|g|^2 = |G|^2 + tr(Sigma) / B (1812.06162), so at another batch the same limit cuts "
            "at other times.",
        )
    yield Note(
        code="pieces-apart",
        message="Each piece is a forward pass of its own: a loss that compares samples with each "
        "other (contrastive, in-batch negatives) sees only its piece, so accumulation is no larger "
        "batch for it; dropout draws other masks than for the whole batch, which is the same in "
        "expectation.",
        hint="`bsprof check` finds such causes in your model, each by name",
    )
    if ground.splitting.curve.is_timed:
        yield _worth(ground, situation)


def _worth(ground: Ground, situation: Situation) -> Note:
    """When the target is free: how much of the throughput one piece per update already has."""
    plan, curve = ground.plan, ground.splitting.curve
    ranks = ground.target.world_size
    share = ""
    if plan.step_time_s is not None:
        runs = ground.choice.chosen.pieces[0].runs[:1]
        one = [PieceRun(size=runs[0].size, count=1)]
        single = curve.seconds(curve.update(one, with_sync=ground.splitting.with_sync)).value
        rate = runs[0].size * ranks / single
        kept = min(1.0, rate / (plan.effective_batch_size / plan.step_time_s.value))
        share = (
            f" Updates of one piece on each rank, {runs[0].size * ranks:,} samples, would already "
            f"have {format_share(kept)} of this throughput."
        )
    hint = (
        ""
        if situation.current_batch is not None
        else "--current-batch N says how the learning rate changes from a batch of N"
    )
    return Note(
        code="accumulation-worth",
        message=f"Accumulating {plural(plan.accumulation_steps, 'piece')} serves a prescribed "
        "effective batch only: where the batch is free, the smallest micro-batch that saturates "
        "throughput with no accumulation takes more steps on the same data (2507.07101 advises "
        f"against accumulation unless several devices are bandwidth-bound; abstract).{share}",
        hint=hint,
    )
