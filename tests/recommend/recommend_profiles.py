"""Profiles made by hand for the tests of recommending: known curves, known memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from bsprof.fit.samples import spread_of_outcomes
from bsprof.predict.scenarios import factors
from bsprof.records import (
    Category,
    DeviceSnapshot,
    Environment,
    Failure,
    Mode,
    Origin,
    Phase,
    Point,
    PointPrediction,
    PointStatus,
    Prediction,
    Profile,
    Quantity,
    TimeWorlds,
    Timing,
    WorkloadFacts,
    WorkloadSpec,
    per_second,
)

GIB = 2**30
MIB = 2**20

ENVIRONMENT = Environment(bsprof="0", python="3.11", torch="2.13.0", platform="test")


def affine(offset_s: float, slope_s: float) -> Callable[[int], float]:
    """Seconds of a micro-step: offset + slope * size."""
    return lambda size: offset_s + slope_s * size


def ok_point(
    size: int,
    seconds: float,
    *,
    used_bytes: float | None = None,
    optimizer_s: float | None = 0.010,
    half_width: float = 0.0,
    samples: tuple[float, ...] = (),
    **more: Any,
) -> Point:
    """A point that ran; `half_width` is the relative half width of its time's interval."""
    used = None if used_bytes is None else Quantity.exact(used_bytes)
    fields = {
        "micro_step_s": Quantity(
            value=seconds, low=seconds * (1 - half_width), high=seconds * (1 + half_width)
        ),
        "optimizer_step_s": None if optimizer_s is None else Quantity.exact(optimizer_s),
        "device_used_bytes": used,
        "alloc_retries": 0,
        "micro_steps_run": 10,
        "observed_micro_batch_size": size,
        "timing": Timing(micro_step_samples_s=samples) if samples else None,
    }
    return Point(micro_batch_size=size, status=PointStatus.OK, **(fields | more))


def failed_point(size: int, status: PointStatus = PointStatus.OOM, **more: Any) -> Point:
    """A point that did not run."""
    failure = Failure(reason="for the test", phase="step", requested_bytes=512 * MIB)
    return Point(micro_batch_size=size, status=status, failure=failure, **more)


def noisy(rng: random.Random, seconds: float, share: float, count: int = 9) -> tuple[float, ...]:
    """Samples around a time, right-skewed like real ones."""
    return tuple(seconds * (1 + share * (rng.expovariate(1.0) - 0.69)) for _ in range(count))


def profile_of(points: Iterable[Point], **more: Any) -> Profile:
    """A complete measured profile of a small model on a CPU with 3 GiB."""
    fields: dict[str, Any] = {
        "origin": Origin.MEASURED,
        "created_at": "2026-01-01T00:00:00Z",
        "workload": WorkloadSpec(model="gpt-tiny", mode=more.pop("mode", Mode.TRAIN)),
        "device": device(),
        "environment": ENVIRONMENT,
        "complete": True,
        "points": tuple(sorted(points, key=lambda p: p.micro_batch_size)),
    }
    return Profile(**(fields | more))


def device(**more: Any) -> DeviceSnapshot:
    """A CPU with 4 GiB of which 3 may be used."""
    fields = {"kind": "cpu", "name": "test CPU", "capacity_bytes": 4 * GIB}
    return DeviceSnapshot(**(fields | {"usable_bytes": 3 * GIB} | more))


def facts(**more: Any) -> WorkloadFacts:
    """Three million parameters in fp32, AdamW."""
    fields = {
        "parameter_count": 3_000_000,
        "trainable_parameter_count": 3_000_000,
        "parameter_bytes": 12_000_000,
        "optimizer": "AdamW",
    }
    return WorkloadFacts(**(fields | more))


def curve_profile(
    sizes: Iterable[int],
    seconds: Callable[[int], float],
    *,
    base_bytes: int = 200 * MIB,
    bytes_per_sample: int = 30 * MIB,
    failed: Iterable[int] = (),
    half_width: float = 0.0,
    **more: Any,
) -> Profile:
    """A profile whose times and memory follow the given curves."""
    points = [
        ok_point(
            size,
            seconds(size),
            used_bytes=base_bytes + bytes_per_sample * size,
            half_width=half_width,
        )
        for size in sizes
    ]
    return profile_of([*points, *map(failed_point, failed)], **more)


def predicted_point(size: int, used_bytes: float, *, share: float = 0.03, **more: Any) -> Point:
    """A predicted point without times; `share` is the half width of its memory's interval."""
    used = Quantity(value=used_bytes, low=used_bytes * (1 - share), high=used_bytes * (1 + share))
    fields = {
        "status": PointStatus.OK,
        "device_used_bytes": used,
        "peak_reserved_bytes": used.scaled(0.9),
        "peak_allocated_bytes": used.scaled(0.85),
        "alloc_retries": 0,
        "peak_phase": Phase.ACCUMULATION,
        "peak_by_category_bytes": {
            Category.WEIGHTS: round(0.2 * used_bytes),
            Category.ACTIVATIONS: round(0.6 * used_bytes),
        },
    }
    return Point(micro_batch_size=size, **(fields | more))


def predicted_profile(
    sizes: Iterable[int] = (1, 2, 4, 8, 16, 32, 64),
    *,
    base_bytes: int = 1 * GIB,
    bytes_per_sample: int = 200 * MIB,
    failed: Iterable[int] = (128,),
    prediction: Prediction | None = None,
    **more: Any,
) -> Profile:
    """Memory of a small model, predicted for a card of which 23 GiB may be used; no times."""
    points = [predicted_point(b, base_bytes + bytes_per_sample * b) for b in sizes]
    card = DeviceSnapshot(
        kind="cuda",
        name="NVIDIA GeForce RTX 4090",
        capacity_bytes=24 * GIB,
        usable_bytes=23 * GIB,
        limit_source="catalogue",
    )
    rules = Prediction(device="rtx-4090", software={"torch": "2.13", "cudnn": "9"})
    fields = {
        "origin": Origin.PREDICTED,
        "device": card,
        "prediction": rules if prediction is None else prediction,
    }
    return profile_of([*points, *map(failed_point, failed)], **(fields | more))


def foretold(
    point: Point,
    seconds: float,
    *,
    machine: str = "a machine",
    machine_spread: float = 0.2,
    own_spread: float = 0.0,
    optimizer_s: float | None = 0.010,
    **more: Any,
) -> Point:
    """A predicted point with times: its machine errs alike at all sizes, the rest on its own.

    Args:
        machine: Profiles with the same one share its error.
        machine_spread, own_spread: Standard deviations of logarithms.
    """
    own = factors(f"size {point.micro_batch_size}", own_spread)
    rows = [f * g for f, g in zip(factors(machine, machine_spread), own, strict=True)]
    steps = tuple(seconds * f for f in rows)
    ends = () if optimizer_s is None else tuple(optimizer_s * f for f in rows)
    fields = {
        "micro_step_s": spread_of_outcomes(seconds, steps),
        "optimizer_step_s": None if optimizer_s is None else spread_of_outcomes(optimizer_s, ends),
        "samples_per_s": per_second(
            point.micro_batch_size, Quantity.exact(seconds + (optimizer_s or 0.0))
        ),
        "prediction": PointPrediction(worlds=TimeWorlds(micro_step_s=steps, optimizer_step_s=ends)),
    }
    return replace(point, **(fields | more))


def timed_prediction(
    seconds: Callable[[int], float],
    sizes: Iterable[int] = (1, 2, 4, 8, 16, 32, 64),
    *,
    name: str = "NVIDIA GeForce RTX 4090",
    catalogue: str = "rtx-4090",
    times: Mapping[str, Any] | None = None,
    **more: Any,
) -> Profile:
    """A predicted profile with times; `times` are arguments of `foretold`."""
    whole = predicted_profile(sizes, prediction=Prediction(device=catalogue), **more)
    given = {"machine": f"machine {catalogue}"} | dict(times or {})
    points = tuple(
        foretold(p, seconds(p.micro_batch_size), **given) if p.is_ok else p for p in whole.points
    )
    return replace(whole, points=points, device=replace(whole.device, name=name))
