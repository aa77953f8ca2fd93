"""The recommendation as the JSON document that others may rely on (`recommend --json`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bsprof.records import PLAN_SCHEMA_VERSION, Alternative, Epoch, Plan, Recommendation
from bsprof.records.codec import to_json
from bsprof.records.plan_digest import plan_digest


def recommendation_document(recommendation: Recommendation) -> dict[str, Any]:
    """The answer as plain JSON values, with stable names.

    Quantities are objects with `value`, `low` and `high` (90 % interval), or null. Seconds,
    bytes, samples per second and shares from 0 to 1 throughout. Alternatives leave their pieces
    out: with small micro-batches those are very many, and nobody runs them. Where no time is known
    (a profile of predicted memory) `step_time_s`, `samples_per_s`, `knee` and every `slower_by` are
    null, and the plan is the one with the fewest micro-steps that fits.
    """
    target = recommendation.target
    return {
        "schema": PLAN_SCHEMA_VERSION,
        "target_batch": target.target_batch,
        "target_tokens": target.target_tokens,
        "world_size": target.world_size,
        "tolerance": target.tolerance,
        "objective": to_json(target.objective),
        "asked_headroom_share": target.headroom_share,
        "asked_headroom_bytes": target.headroom_bytes,
        **_plan(recommendation.plan),
        "digest": plan_digest(recommendation.plan.pieces),
        "knee": to_json(recommendation.knee),
        "epoch": _epoch(recommendation.epoch),
        "reasons": list(recommendation.reasons),
        "alternatives": [_alternative(a) for a in recommendation.alternatives],
        "advice": to_json(recommendation.advice),
        "notes": to_json(recommendation.notes),
        "profile": recommendation.profile,
    }


def _epoch(epoch: Epoch | None) -> dict[str, Any] | None:
    """Lengths in optimizer steps; the partial update's pieces by rank."""
    if epoch is None:
        return None
    return {
        "dataset_size": epoch.dataset_size,
        "updates_per_epoch": epoch.whole_updates,
        "updates_per_epoch_with_last": epoch.updates_with_last,
        "left_samples": epoch.left_samples,
        "last_pieces_by_rank": [
            list(kind.expanded()) for kind in epoch.last_pieces for _ in range(kind.ranks)
        ],
        "epochs": epoch.epochs,
        "schedule_updates": epoch.schedule_updates,
        "carried_updates": epoch.carried_updates,
        "warmup_updates": epoch.warmup_updates,
    }


def _plan(plan: Plan) -> dict[str, Any]:
    # The pieces are plain integers and may be very many: copied, not walked.
    document = to_json(plan)
    assert isinstance(document, dict)
    del document["pieces"]
    document["pieces_by_rank"] = [list(rank) for rank in plan.pieces_by_rank]
    return document


def _alternative(alternative: Alternative) -> dict[str, Any]:
    document = _plan(replace(alternative.plan, pieces=()))
    del document["pieces_by_rank"]
    return {
        **document,
        "slower_by": to_json(alternative.slower_by),
        "reason": alternative.reason,
    }
