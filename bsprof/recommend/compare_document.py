"""The comparison as the JSON document that others may rely on (`compare --json`)."""

from __future__ import annotations

from typing import Any

from bsprof.recommend.by_size import AgainstMeasured, SizePoints
from bsprof.recommend.compared import ComparedProfile, Comparison
from bsprof.recommend.ranking import Ranking
from bsprof.records.codec import to_json

COMPARISON_SCHEMA_VERSION = 1
"""Version of the comparison document. History: 1, the first (0.2.0)."""


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain JSON values, with stable names.

    Quantities are objects with `value`, `low` and `high` (90 % interval), or null. Seconds,
    bytes and units per second throughout; `unit` says what `rate_per_s` counts. Times, rates and
    ratios are null where no time is known (a profile of memory alone).
    """
    return {
        "schema": COMPARISON_SCHEMA_VERSION,
        "title": comparison.title,
        "unit": comparison.unit,
        "target_batch": comparison.target_batch,
        "target_tokens": comparison.target_tokens,
        "world_size": comparison.world_size,
        "differences": to_json(comparison.differences),
        "profiles": [_profile(entry) for entry in comparison.profiles],
        "notes": to_json(comparison.notes),
        "memory_by_size": [_size(row) for row in comparison.by_size],
        "rankings": [_ranking(comparison, r) for r in comparison.rankings],
        "predicted_against_measured": [_against(comparison, p) for p in comparison.against],
    }


_OF_POINT = ("device_used_bytes", "peak_reserved_bytes", "peak_allocated_bytes")


def _ranking(comparison: Comparison, ranking: Ranking) -> dict[str, Any]:
    return {
        "by": to_json(ranking.by),
        "order": [comparison.profiles[i].name for i in ranking.order],
        "first_is_right": ranking.first_is_right,
        "order_is_right": ranking.order_is_right,
    }


def _size(row: SizePoints) -> dict[str, Any]:
    return {
        "micro_batch_size": row.micro_batch_size,
        "profiles": [
            None
            if point is None
            else {
                "status": to_json(point.status),
                "alloc_retries": point.alloc_retries,
                **{name: to_json(getattr(point, name)) for name in _OF_POINT},
            }
            for point in row.points
        ],
    }


def _against(comparison: Comparison, pair: AgainstMeasured) -> dict[str, Any]:
    return {
        "predicted": comparison.profiles[pair.predicted].name,
        "measured": comparison.profiles[pair.measured].name,
        "field": pair.field,
        "micro_batch_sizes": list(pair.sizes),
        "ratios": list(pair.ratios),
        "median_error": pair.median_error,
        "inside_interval": pair.inside,
    }


_OF_PLAN = (
    "micro_batch_size",
    "accumulation_steps",
    "effective_batch_size",
    "step_time_s",
    "samples_per_s",
    "device_used_bytes",
    "headroom_bytes",
    "confirmed",
    "interpolated",
    "regime",
    "energy_j",
)


def _profile(entry: ComparedProfile) -> dict[str, Any]:
    profile, plan = entry.profile, entry.plan
    facts = profile.facts
    return {
        "name": entry.name,
        "label": entry.label,
        "origin": to_json(profile.origin),
        "created_at": profile.created_at,
        "complete": profile.complete,
        "workload": to_json(profile.workload),
        "parameter_count": None if facts is None else facts.parameter_count,
        "tokens_per_sample": None if facts is None else facts.tokens_per_sample,
        "device": profile.device.name,
        "device_kind": profile.device.kind,
        "usable_bytes": profile.device.usable_bytes,
        "max_micro_batch_size": to_json(profile.max_micro_batch_size),
        **{name: None if plan is None else to_json(getattr(plan, name)) for name in _OF_PLAN},
        "knee": to_json(entry.knee),
        "rate_per_s": to_json(entry.rate_per_s),
        "price_per_hour": entry.price_per_hour,
        "cost_per_million": to_json(entry.cost_per_million),
        "ratio": to_json(entry.ratio),
        "verdict": entry.verdict,
        "problem": None if entry.error is None else entry.error.doing,
    }
