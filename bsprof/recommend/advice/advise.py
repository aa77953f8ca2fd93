"""All advice on a plan, in reading order."""

from __future__ import annotations

from bsprof.recommend.advice.accumulating import on_accumulating
from bsprof.recommend.advice.batch_norm import on_batch_norm
from bsprof.recommend.advice.learning_rate import on_learning_rate
from bsprof.recommend.advice.precision import on_precision
from bsprof.recommend.advice.situation import Situation
from bsprof.recommend.reasons import Ground
from bsprof.records import Note

__all__ = ["Situation", "advise"]


def advise(ground: Ground, situation: Situation) -> tuple[Note, ...]:
    """What to change, and what to mind, when training with the plan; nothing for inference."""
    if ground.infers:
        return ()
    return (
        *on_learning_rate(ground, situation),
        *on_batch_norm(ground),
        *on_precision(ground),
        *on_accumulating(ground, situation),
    )
