"""Answers from hand-made profiles, for the tests of settings."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import Any

from bsprof.frameworks import Settings, settings_for
from bsprof.recommend.advice import Situation
from bsprof.recommend.plan import recommend_plan
from bsprof.records import (
    DeviceSnapshot,
    Environment,
    Mode,
    Origin,
    Point,
    PointStatus,
    Precision,
    Profile,
    Quantity,
    Recommendation,
    WorkloadSpec,
)

GIB = 2**30


def small_profile(sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 48), **changes: Any) -> Profile:
    """Sizes that all fit, larger ones faster per sample."""
    points = tuple(
        Point(
            micro_batch_size=size,
            observed_micro_batch_size=size,
            micro_steps_run=9,
            status=PointStatus.OK,
            alloc_retries=0,
            micro_step_s=Quantity.exact(0.02 + 0.004 * size),
            optimizer_step_s=Quantity.exact(0.01),
            device_used_bytes=Quantity.exact(0.1 * GIB + 0.02 * GIB * size),
        )
        for size in sizes
    )
    fields: dict[str, Any] = {
        "origin": Origin.MEASURED,
        "created_at": "2026-01-01T00:00:00Z",
        "workload": WorkloadSpec(model="mlp", **changes),
        "device": DeviceSnapshot(
            kind="cpu", name="test CPU", capacity_bytes=4 * GIB, usable_bytes=3 * GIB
        ),
        "environment": Environment(bsprof="0", python="3.11", torch="2.13.0", platform="test"),
        "complete": True,
        "points": points,
    }
    return Profile(**fields)


@functools.cache
def answer(
    target: int,
    world_size: int = 1,
    *,
    dataset_size: int | None = None,
    largest: int = 48,
    **spec: Any,
) -> tuple[Recommendation, Profile]:
    """The answer to a target, with its profile; sizes up to `largest`."""
    sizes = tuple(s for s in (1, 2, 4, 8, 16, 32, 48) if s <= largest)
    profile = small_profile(sizes, **spec)
    found = recommend_plan(
        profile,
        target_batch=target,
        world_size=world_size,
        profile_name="test/mlp",
        situation=Situation(dataset_size=dataset_size),
    )
    return found, profile


def settings(framework: str, target: int, world_size: int = 1, **more: Any) -> Settings:
    """The settings of that answer."""
    return settings_for(*answer(target, world_size, **more), framework)


def names_of(found: Settings) -> dict[str, Any]:
    """What the emitted program defines, run as it is."""
    scope: dict[str, Any] = {}
    exec(compile(found.text, f"settings{found.suffix}", "exec"), scope)
    return scope


def flags_of(found: Settings) -> dict[str, str]:
    """Flags and values of emitted command lines."""
    lines = [line for line in found.text.splitlines() if not line.startswith("#")]
    return dict(line.split(" ", 1) for line in lines)


def document_of(found: Settings) -> dict[str, Any]:
    """The emitted JSON."""
    document = json.loads(found.text)
    assert isinstance(document, dict)
    return document


def inference(profile: Profile) -> Profile:
    """The same profile, of inference."""
    return replace(profile, workload=replace(profile.workload, mode=Mode.INFER))


AMP_BF16 = Precision.AMP_BF16
