"""From a profile and a target to the plan to train with, and what it beat.

Pure Python on purpose: this runs at the speed of a shell command, so nothing on its path may
import numpy or torch.
"""

from __future__ import annotations

import math
from dataclasses import replace

from bsprof.fit.knee import knee_from_points
from bsprof.recommend import memory_reasons, reasons, remarks
from bsprof.recommend.advice import Situation, advise
from bsprof.recommend.candidates import Candidate, Splitting
from bsprof.recommend.choose import choose
from bsprof.recommend.curve import Curve
from bsprof.recommend.energy import plan_energy
from bsprof.recommend.epoch import dataset_size_of, epoch_notes, epoch_of
from bsprof.recommend.fewest_steps import choose_by_steps
from bsprof.recommend.infeasible import (
    gradient_bytes,
    nothing_fits,
    nothing_measured,
    nothing_splits,
)
from bsprof.recommend.target import headroom_of, read_question
from bsprof.records import (
    DEFAULT_HEADROOM,
    Alternative,
    Mode,
    Objective,
    Plan,
    Profile,
    Quantity,
    Recommendation,
    Target,
    per_second,
)


def recommend_plan(
    profile: Profile,
    *,
    target_batch: int | None = None,
    target_tokens: int | None = None,
    world_size: int = 1,
    headroom: float | int = DEFAULT_HEADROOM,
    tolerance: float = 0.0,
    objective: Objective | str = Objective.TIME,
    profile_name: str = "",
    situation: Situation | None = None,
) -> Recommendation:
    """The micro-batch size and accumulation steps to run a target with, and why.

    Only sizes that were measured and fit, or lie between two that do and are marked as
    interpolated, are ever recommended. Ties and objectives: see `bsprof.recommend.choose`; for a
    predicted profile without times, `bsprof.recommend.fewest_steps`: the answer then has no time,
    and says so.

    Args:
        profile: All points of the workload on the device.
        target_batch: Samples per update over all ranks, met exactly by default. May be left
            open for a profile of inference: the answer is then the best micro-batch itself.
        target_tokens: The same in tokens; give one of the two.
        world_size: Data-parallel ranks.
        headroom: Usable memory to leave free: a float is a share from 0 to 1, an int is bytes.
            The upper end of the peak's interval is held against it.
        tolerance: How far the samples per update may be off the target, 0 to 1, where equal
            pieces make the update faster per sample.
        objective: `time`, `memory` (the smallest peak at most 5 % slower than the fastest;
            without times the fewest micro-steps at the smallest peak) or `cost` (the same as
            `time` on one device).
        profile_name: What the answer calls the profile.
        situation: The data set, the schedule and the batch that the learning rate was tuned at.

    Raises:
        UsageError: a value that cannot be; a target smaller than the world size.
        NoFeasibleBatch: no measured size fits, leaves the headroom, or adds up to the target.
        MeasurementError: the profile has no usable point, for another reason than memory.
    """
    question = read_question(
        profile,
        target_batch=target_batch,
        target_tokens=target_tokens,
        world_size=world_size,
        headroom=headroom,
        tolerance=tolerance,
        objective=objective,
    )
    target = question.target
    limit = profile.device.usable_bytes - headroom_of(target, profile.device.usable_bytes)
    target_batch = None if question.open_batch else target.target_batch
    splitting = _splitting(profile, target_batch, target, limit)
    curve = splitting.curve
    if not curve.points:
        raise nothing_measured(profile)
    candidates = splitting.candidates()
    if not candidates:
        raise nothing_splits(profile, target, curve, splitting.avoid_single)
    if curve.is_timed:
        choice = choose(splitting, candidates, limit_bytes=limit, objective=target.objective)
    else:
        choice = choose_by_steps(candidates, limit_bytes=limit, objective=target.objective)
    if choice is None:
        raise nothing_fits(profile, target, curve, candidates[0])
    plan = _plan(profile, curve, choice.chosen)
    if question.open_batch:
        target = replace(target, target_batch=plan.effective_batch_size)
    ground = reasons.Ground(
        profile=profile,
        target=target,
        splitting=splitting,
        choice=choice,
        plan=plan,
        limit_bytes=limit,
    )
    situation = situation or Situation()
    samples = None if ground.infers else situation.dataset_size or dataset_size_of(profile)
    epoch = samples and epoch_of(
        samples,
        plan.pieces,
        epochs=situation.epochs,
        warmup_share=situation.warmup_share,
        allowed=lambda n: curve.is_safe(n) and not (splitting.avoid_single and n == 1),
    )
    return Recommendation(
        target=target,
        plan=plan,
        reasons=(reasons if curve.is_timed else memory_reasons).reasons(ground),
        knee=knee_from_points(tuple(curve.points.values())),
        alternatives=_alternatives(ground),
        advice=(
            *remarks.advice(ground),
            *advise(ground, situation),
            *(epoch_notes(epoch) if epoch else ()),
        ),
        notes=(*question.notes, *remarks.notes(ground)),
        profile=profile_name,
        epoch=epoch or None,
    )


def _splitting(
    profile: Profile, target_batch: int | None, target: Target, limit_bytes: float
) -> Splitting:
    trains = profile.workload.mode is Mode.TRAIN
    synchronises = trains and target.world_size > 1
    # One rank measured alone has no communication buffers; DDP's are as large as the gradients.
    extra = gradient_bytes(profile) if synchronises and profile.ranks == 1 else 0
    batch_norm = profile.facts is not None and profile.facts.batch_norm_modules > 0
    return Splitting(
        curve=Curve.of(profile, extra_bytes=extra),
        target_batch=target_batch,
        world_size=target.world_size,
        tolerance=target.tolerance,
        avoid_single=trains and batch_norm,
        with_sync=synchronises,
        prefer_one_shape=profile.workload.compile or profile.workload.cudnn_benchmark,
        limit_bytes=limit_bytes,
    )


def _plan(profile: Profile, curve: Curve, candidate: Candidate) -> Plan:
    size, step_time = candidate.micro_batch_size, candidate.step_time_s
    used = _used_on_device(curve, candidate)
    point = curve.points.get(size)
    return Plan(
        micro_batch_size=size,
        accumulation_steps=candidate.accumulation_steps,
        pieces=candidate.pieces,
        effective_batch_size=candidate.effective_batch_size,
        step_time_s=step_time,
        samples_per_s=None
        if step_time is None
        else per_second(candidate.effective_batch_size, step_time),
        device_used_bytes=used,
        headroom_bytes=None
        if used is None
        else math.floor(profile.device.usable_bytes - used.high),
        confirmed=point is not None and point.confirmed,
        interpolated=candidate.interpolated,
        regime=curve.regime(size),
        energy_j=plan_energy(point, candidate),
    )


def _used_on_device(curve: Curve, candidate: Candidate) -> Quantity | None:
    """Device-used bytes; None where only a part of them (reserved, allocated) is known."""
    return candidate.used_bytes if curve.memory_field == "device_used_bytes" else None


def _alternatives(ground: reasons.Ground) -> tuple[Alternative, ...]:
    """All other candidates, the fastest first; those that leave too little memory among them.

    Where no time is known, those with the fewest micro-steps come first.
    """
    choice, splitting = ground.choice, ground.splitting
    others = [c for c in (*choice.fitting, *choice.too_large) if c is not choice.chosen]
    found = []
    if not splitting.curve.is_timed:
        return tuple(
            Alternative(
                plan=_plan(ground.profile, splitting.curve, other),
                slower_by=None,
                reason=memory_reasons.reason_against(ground, other),
            )
            for other in sorted(others, key=lambda c: c.effort)
        )
    for other in others:
        excess = splitting.excess(other, choice.chosen)
        found.append(
            Alternative(
                plan=_plan(ground.profile, splitting.curve, other),
                slower_by=excess,
                reason=reasons.reason_against(ground, other, excess),
            )
        )
    return tuple(sorted(found, key=_slower_then_larger))


def _slower_then_larger(alternative: Alternative) -> tuple[float, int]:
    assert alternative.slower_by is not None, "times are known"
    return alternative.slower_by.value, alternative.plan.micro_batch_size
