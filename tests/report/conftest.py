"""Made-up profiles for the report's tests: known curves, faults and awkward texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bsprof.fit.samples import spread_of_outcomes
from bsprof.predict.scenarios import factors
from bsprof.records import (
    Alternative,
    Category,
    Change,
    DevicePeaks,
    DeviceSnapshot,
    Environment,
    Failure,
    HeavyOperator,
    MemoryPeaks,
    Note,
    Origin,
    Phase,
    Place,
    Plan,
    Point,
    PointPrediction,
    PointStatus,
    Prediction,
    Profile,
    Quantity,
    RankPieces,
    Recommendation,
    Regime,
    Stage,
    Target,
    Term,
    Timeline,
    TimeWorlds,
    Timing,
    WorkloadFacts,
    WorkloadSpec,
    per_second,
)

MIB = 2**20
GIB = 2**30
WEIGHTS = 14 * MIB
LIMIT = 3 * GIB
CARD_LIMIT = 2080 * MIB
CARD_FLOPS = 8e13
NOISE = (0.991, 1.004, 0.998, 1.007, 0.995, 1.001, 1.003, 0.996, 1.000)


def around(value: float, share: float = 0.01) -> Quantity:
    return Quantity(value=value, low=value * (1 - share), high=value * (1 + share))


def used_bytes(size: int) -> dict[Phase, int]:
    return {
        Phase.FORWARD_BACKWARD: 140 * MIB + size * 39 * MIB,
        Phase.ACCUMULATION: 156 * MIB + size * 39 * MIB,
        Phase.OPTIMIZER_STEP: 240 * MIB + size * 2 * MIB,
    }


def make_ok_point(size: int, *, with_peaks: bool = True, confirmed: bool = False) -> Point:
    """A point of a small GPT on a CPU: 5 ms launch floor, 21 ms per sample, 12 ms optimizer."""
    seconds = 0.009 + 0.021 * size
    used = used_bytes(size)
    peak = max(used.values())
    phase = max(used, key=lambda p: used[p])
    flops = 3.1e9 * size
    return Point(
        micro_batch_size=size,
        status=PointStatus.OK,
        micro_step_s=around(seconds),
        optimizer_step_s=around(0.012, 0.03),
        samples_per_s=per_second(size, around(seconds + 0.012)),
        peak_allocated_bytes=Quantity.exact(peak - 90 * MIB),
        device_used_bytes=Quantity.exact(peak),
        flops=Quantity.exact(flops),
        bytes_moved=Quantity.exact(flops / 9),
        arithmetic_intensity=Quantity.exact(9.0),
        mfu=around(flops / seconds / 2.2e11) if with_peaks else None,
        hfu=around(flops / seconds / 2.2e11) if with_peaks else None,
        regime=Regime.COMPUTE if with_peaks else Regime.UNKNOWN,
        peak_phase=phase,
        peak_by_category_bytes={
            Category.WEIGHTS: WEIGHTS,
            Category.GRADIENTS: WEIGHTS,
            Category.OPTIMIZER_STATE: 2 * WEIGHTS,
            Category.ACTIVATIONS: size * 31 * MIB,
            Category.TEMPORARIES: size * 6 * MIB,
        },
        confirmed=confirmed,
        observed_micro_batch_size=size,
        micro_steps_run=24,
        alloc_retries=0,
        timing=Timing(
            micro_step_samples_s=tuple(seconds * n for n in NOISE),
            optimizer_step_samples_s=tuple(0.012 * n for n in NOISE[:4]),
            block_steps=2,
            warmup_steps=3,
        ),
        memory=MemoryPeaks(
            resident_bytes=3 * WEIGHTS,
            allocated_by_phase_bytes={p: b - 90 * MIB for p, b in used.items()},
            device_used_by_phase_bytes=used,
            updates=3,
        ),
    )


def make_failed_point(size: int, status: PointStatus = PointStatus.OOM) -> Point:
    return Point(
        micro_batch_size=size,
        status=status,
        failure=Failure(
            reason="the CPU allocator refused memory",
            phase="step",
            error_type="RuntimeError",
            location="train.py:12",
            tail=("Traceback (most recent call last):", "RuntimeError: not enough memory"),
            requested_bytes=300 * MIB,
        ),
    )


def make_profile(
    sizes: Sequence[int] = (1, 2, 4, 8, 16, 32, 48, 64),
    failed: Sequence[int] = (80, 96),
    *,
    with_peaks: bool = True,
    model: str = "gpt-tiny",
    device: str = "AMD EPYC 9B14",
    notes: tuple[Note, ...] = (),
) -> Profile:
    points = [
        make_ok_point(size, with_peaks=with_peaks, confirmed=size == 16) for size in sorted(sizes)
    ]
    return Profile(
        origin=Origin.MEASURED,
        created_at="2026-03-14T09:26:53Z",
        workload=WorkloadSpec(model=model, seq_len=128),
        facts=WorkloadFacts(
            parameter_count=3_481_600,
            trainable_parameter_count=3_481_600,
            parameter_bytes=WEIGHTS,
            tokens_per_sample=128,
            optimizer="AdamW",
        ),
        device=DeviceSnapshot(
            kind="cpu",
            name=device,
            capacity_bytes=16 * GIB,
            usable_bytes=LIMIT,
            limit_source="option",
            threads=2,
            compute_units=2,
        ),
        peaks=DevicePeaks(
            flops_per_s={"fp32": 2.2e11, "bf16": 1.1e11},
            bandwidth_bytes_per_s=2.4e10,
            launch_s=2.1e-6,
            source="probe",
            device_key="cpu",
        )
        if with_peaks
        else None,
        environment=Environment(
            bsprof="0.1.0",
            python="3.11.9",
            torch="2.13.0",
            platform="Linux x86_64",
            libraries={"mkl": "2024.2"},
            settings={"tf32": False, "threads": 2, "OMP_NUM_THREADS": None},
        ),
        complete=True,
        notes=notes,
        points=(*points, *(make_failed_point(size) for size in failed)),
        max_micro_batch_size=Quantity(value=74, low=71, high=77) if failed and sizes else None,
        duration_s=11.3,
    )


def make_timeline(size: int) -> Timeline:
    """A first micro-step, one that accumulates, and the optimizer step; the peak in the second."""
    ramp = [*range(21), *range(19, -1, -2)]  # forward, then backward
    steps = 10
    activations = [*(r * size * MIB for r in ramp), *(r * size * MIB for r in ramp), *([0] * steps)]
    count = len(activations)
    grown = [0] * 21 + [WEIGHTS * (i + 1) // 10 for i in range(10)] + [WEIGHTS] * (count - 31)
    return Timeline(
        positions=tuple(7 * i for i in range(count)),
        bytes_by_category={
            Category.WEIGHTS: (WEIGHTS,) * count,
            Category.OPTIMIZER_STATE: (2 * WEIGHTS,) * count,
            Category.GRADIENTS: tuple(grown),
            Category.ACTIVATIONS: tuple(activations),
            Category.LIBRARIES: (8 * MIB,) * count,
        },
        reserved_bytes=tuple(max(activations[: i + 1]) + 6 * WEIGHTS for i in range(count)),
        stages=(
            Stage(sample=0, phase=Phase.FORWARD_BACKWARD, micro_step=0),
            Stage(sample=21, phase=Phase.FORWARD_BACKWARD, micro_step=0, backward=True),
            Stage(sample=31, phase=Phase.ACCUMULATION, micro_step=1),
            Stage(sample=52, phase=Phase.ACCUMULATION, micro_step=1, backward=True),
            Stage(sample=62, phase=Phase.OPTIMIZER_STEP),
        ),
        peak=51,
    )


def make_predicted_point(size: int, *, draw: bool = False, flush: bool = False) -> Point:
    """Memory of a small GPT on a card: no times, an interval of 3 %, fits up to 2 GiB."""
    point = make_ok_point(size, with_peaks=False)
    assert point.device_used_bytes is not None
    used = CARD_LIMIT if flush else point.device_used_bytes.value + 500 * MIB
    fits = used <= CARD_LIMIT
    reserved = used - 450 * MIB
    category = {**point.peak_by_category_bytes, Category.LIBRARIES: 8 * MIB}
    phases = {} if point.memory is None else point.memory.device_used_by_phase_bytes
    return replace(
        point,
        status=PointStatus.OK if fits else PointStatus.OOM,
        micro_step_s=None,
        optimizer_step_s=None,
        samples_per_s=None,
        arithmetic_intensity=None,
        timing=None,
        micro_steps_run=0,
        observed_micro_batch_size=None,
        confirmed=False,
        alloc_retries=int(flush),
        device_used_bytes=around(used, 0.03),
        peak_reserved_bytes=around(reserved, 0.02),
        peak_allocated_bytes=around(sum(category.values()), 0.01),
        peak_by_category_bytes=category,
        memory=MemoryPeaks(
            resident_bytes=3 * WEIGHTS,
            allocated_by_phase_bytes={p: b - 90 * MIB for p, b in phases.items()},
            device_used_by_phase_bytes={p: b + 500 * MIB for p, b in phases.items()},
            updates=2,
        ),
        failure=None
        if fits
        else Failure(reason="would need more than is usable", phase="accumulation"),
        prediction=PointPrediction(
            top_modules={
                "blocks.11.mlp.up": size * 9 * MIB,
                "blocks.11.attention.query_key_value_projection": size * 7 * MIB,
                "head": size * 5 * MIB,
                "": 3 * MIB,
            },
            terms=(
                Term(
                    name="convolution workspace",
                    bytes=Quantity(value=size * MIB, low=0, high=2 * size * MIB),
                    place=Place.ALLOCATOR,
                    source="the least that its algorithms need",
                ),
            ),
            timeline=make_timeline(size) if draw else None,
        ),
    )


def make_predicted(
    sizes: Sequence[int] = (1, 2, 4, 8, 16, 32, 35, 38, 40), flushed: Sequence[int] = (38,)
) -> Profile:
    """A prediction for a card of 2 GiB: up to 35 fits, 38 only after a flush, 40 does not."""
    fits = [b for b in sizes if b <= 35]
    points = [
        make_predicted_point(b, draw=b == max(fits, default=min(sizes)), flush=b in flushed)
        for b in sizes
    ]
    return replace(
        make_profile(failed=()),
        origin=Origin.PREDICTED,
        device=DeviceSnapshot(
            kind="cuda",
            name="NVIDIA GeForce RTX 4090",
            capacity_bytes=CARD_LIMIT + 400 * MIB,
            usable_bytes=CARD_LIMIT,
            limit_source="catalogue",
            compute_units=128,
        ),
        peaks=None,
        points=tuple(points),
        max_micro_batch_size=Quantity(value=35, low=34, high=37) if fits else None,
        duration_s=1.7,
        prediction=Prediction(
            device="rtx-4090",
            software={"torch": "2.13", "cudnn": "9", "cuda": "12.8"},
            terms=(
                Term(
                    name="CUDA context",
                    bytes=around(450 * MIB, 0.2),
                    place=Place.OUTSIDE,
                    source="own measurements of an idle process",
                ),
            ),
            changes=(
                Change(
                    name="full activation checkpointing",
                    options=("--activation-checkpointing", "full"),
                    micro_batch_size=40,
                    device_used_bytes=around(900 * MIB, 0.03),
                    saved_bytes=around(1200 * MIB, 0.03),
                    fits=True,
                ),
            ),
        ),
    )


MACHINE = factors("machine", 0.15)


def in_time(point: Point) -> Point:
    """The predicted point with times: launch-bound up to 2, then bound by arithmetic."""
    size = point.micro_batch_size
    device_s, host_s = 0.004 * size, 0.009
    step = max(device_s, host_s)
    steps = tuple(step * f for f in MACHINE)
    ends = tuple(0.002 * f for f in MACHINE)
    flops, moved = 1e11 * size, 4e8 * size + 6e8
    assert point.prediction is not None
    mfu = around(flops / step / CARD_FLOPS, 0.2)
    return replace(
        point,
        micro_step_s=spread_of_outcomes(step, steps),
        optimizer_step_s=spread_of_outcomes(0.002, ends),
        samples_per_s=per_second(size, around(step + 0.002, 0.2)),
        flops=Quantity.exact(flops),
        bytes_moved=Quantity.exact(moved),
        arithmetic_intensity=Quantity.exact(flops / moved),
        mfu=mfu,
        hfu=mfu,
        regime=Regime.LAUNCH if host_s > device_s else Regime.COMPUTE,
        prediction=replace(
            point.prediction,
            worlds=TimeWorlds(micro_step_s=steps, optimizer_step_s=ends),
            seconds_by_class={
                "matmul": 0.5 * device_s,
                "batched_matmul": 0.1 * device_s,
                "attention_forward": 0.1 * device_s,
                "softmax": 0.2 * device_s,
                "embedding": 0.1 * device_s,
            },
            host_s=host_s,
            heaviest=(
                HeavyOperator(
                    name="aten.mm",
                    work_class="matmul",
                    shape=f"({128 * size}, 192) by (192, 768), bf16",
                    count=12,
                    seconds=0.3 * device_s,
                    flops=round(0.4 * flops),
                    bytes=round(0.1 * moved),
                    regime=Regime.COMPUTE,
                ),
                HeavyOperator(
                    name="aten._log_softmax",
                    work_class="softmax",
                    shape=f"{128 * size} x 50257, fp32",
                    count=1,
                    seconds=0.2 * device_s,
                    flops=0,
                    bytes=round(0.3 * moved),
                    regime=Regime.BANDWIDTH,
                ),
            ),
        ),
    )


def make_timed_prediction(**more: Any) -> Profile:
    """`make_predicted` with times, ceilings of a data sheet and where the times come from."""
    whole = make_predicted(**more)
    assert whole.prediction is not None
    return replace(
        whole,
        peaks=DevicePeaks(
            flops_per_s={"fp32": CARD_FLOPS, "bf16": 1.6e14},
            bandwidth_bytes_per_s=1e12,
            launch_s=2e-6,
            source="catalogue",
            device_key="rtx-4090",
        ),
        points=tuple(in_time(p) if p.status is PointStatus.OK else p for p in whole.points),
        prediction=replace(
            whole.prediction,
            timing=("ceiling of fp32 matmuls: a table <b>", "shapes: measured on this family"),
        ),
    )


def make_plan(size: int, target: int, ranks: int = 1) -> Plan:
    share = target // ranks
    pieces = (*((size,) * (share // size)), *((share % size,) if share % size else ()))
    seconds = sum(0.009 + 0.021 * n for n in pieces) + 0.012
    return Plan(
        micro_batch_size=size,
        accumulation_steps=len(pieces),
        pieces=(RankPieces.of(pieces, ranks=ranks),),
        effective_batch_size=share * ranks,
        step_time_s=around(seconds, 0.006),
        samples_per_s=per_second(share * ranks, around(seconds, 0.006)),
        device_used_bytes=Quantity.exact(max(used_bytes(size).values())),
        headroom_bytes=LIMIT - max(used_bytes(size).values()),
        confirmed=size == 16,
        regime=Regime.COMPUTE,
    )


def make_recommendation(
    size: int = 16, target: int = 2048, ranks: int = 1, profile: str = ""
) -> Recommendation:
    plan = make_plan(size, target, ranks)
    others = [make_plan(other, target, ranks) for other in (8, 32, 64)]
    return Recommendation(
        target=Target(target_batch=target, world_size=ranks),
        plan=plan,
        reasons=(
            "16 is the smallest size within 1 % of the fastest update.",
            "Throughput levels off from 9 on; larger sizes only cost memory.",
        ),
        knee=Quantity(value=9, low=7, high=11),
        alternatives=tuple(
            Alternative(
                plan=other,
                slower_by=Quantity.ordered(
                    other.step_time_s.value / plan.step_time_s.value - 1,
                    other.step_time_s.value / plan.step_time_s.value - 1.006,
                    other.step_time_s.value / plan.step_time_s.value - 0.994,
                ),
                reason="slower" if other.micro_batch_size < size else "a tie, and larger",
            )
            for other in others
        ),
        notes=(Note(code="probe", message="The peaks were measured on this machine."),),
        profile=profile,
    )


@pytest.fixture
def profile() -> Profile:
    """A complete sweep: eight sizes, two too big, peaks, categories."""
    return make_profile()


@pytest.fixture
def predicted() -> Profile:
    """Memory alone, predicted: no times."""
    return make_predicted()


@pytest.fixture
def timed() -> Profile:
    """Time and memory, predicted."""
    return make_timed_prediction()


@pytest.fixture
def timed_of() -> Callable[..., Profile]:
    return make_timed_prediction


@pytest.fixture
def predicted_of() -> Callable[..., Profile]:
    return make_predicted


@pytest.fixture
def profile_of() -> Callable[..., Profile]:
    return make_profile


@pytest.fixture
def recommendation_of() -> Callable[..., Recommendation]:
    return make_recommendation


@pytest.fixture
def edge_profile() -> Profile:
    """The largest size fits only after a cache flush."""
    whole = make_profile()
    edge = replace(whole.points[7], alloc_retries=2)
    return replace(whole, points=(*whole.points[:7], edge, *whole.points[8:]))
