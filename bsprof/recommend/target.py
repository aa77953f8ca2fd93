"""Checks what was asked and turns it into a `Target`: samples per update, ranks, room to leave."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bsprof.errors import UsageError
from bsprof.records import Mode, Note, Objective, Profile, Target
from bsprof.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A target, and whether the caller named its batch.

    Attributes:
        target: What was asked. Without a named batch (inference only) `target_batch` is the
            number of ranks, until the answer replaces it.
        open_batch: Whether the batch was left open: the best micro-batch itself is the answer.
        notes: Remarks on reading the question.
    """

    target: Target
    open_batch: bool = False
    notes: tuple[Note, ...] = ()


def read_question(
    profile: Profile,
    *,
    target_batch: int | None,
    target_tokens: int | None,
    world_size: int,
    headroom: float | int,
    tolerance: float,
    objective: Objective | str,
) -> Question:
    """The question of a recommendation, checked.

    Raises:
        UsageError: a value that cannot be, both or none of batch and tokens, a target smaller
            than the world size.
    """
    notes: tuple[Note, ...] = ()
    if world_size < 1:
        raise UsageError(
            f"the world size must be at least 1, not {world_size}",
            next_step="give the number of data-parallel ranks (--world-size)",
        )
    if not (math.isfinite(tolerance) and 0 <= tolerance < 1):
        raise UsageError(
            f"the tolerance must be a share from 0 to 1, not {tolerance}",
            next_step="write 1 % as 0.01 (on the command line: --tolerance 1%)",
        )
    if target_batch is not None and target_tokens is not None:
        raise UsageError(
            "a target is given in samples or in tokens, not both",
            found=f"target batch {target_batch}, target tokens {target_tokens}",
            next_step="leave one of --target-batch and --target-tokens out",
        )
    if target_tokens is not None:
        target_batch, notes = _samples_from_tokens(profile, target_tokens)
    open_batch = target_batch is None
    if target_batch is None:
        if profile.workload.mode is not Mode.INFER:
            raise UsageError(
                "a recommendation for training needs a target",
                next_step="give the samples per update (--target-batch) or --target-tokens",
            )
        if tolerance:
            raise UsageError(
                "a tolerance means nothing without a target batch",
                next_step="add --target-batch, or leave --tolerance out",
            )
        target_batch = world_size
    _check_batch(target_batch, world_size)
    _check_sharding(profile, world_size)
    share, amount = _headroom(headroom, profile.device.usable_bytes)
    target = Target(
        target_batch=target_batch,
        target_tokens=target_tokens,
        world_size=world_size,
        headroom_share=share,
        headroom_bytes=amount,
        tolerance=tolerance,
        objective=_objective(objective),
    )
    return Question(target=target, open_batch=open_batch, notes=notes)


def headroom_of(target: Target, usable_bytes: int) -> int:
    """Bytes that the target leaves free of `usable_bytes`, rounded up."""
    if target.headroom_bytes is not None:
        return target.headroom_bytes
    return math.ceil(target.headroom_share * usable_bytes)


def _check_batch(target_batch: int, world_size: int) -> None:
    if target_batch < 1:
        raise UsageError(
            f"the target batch must be at least 1 sample, not {target_batch}",
            next_step="give the samples per update, over all ranks (--target-batch)",
        )
    if target_batch < world_size:
        raise UsageError(
            f"a target batch of {target_batch} cannot be shared by {world_size} ranks",
            found="each rank needs at least one sample per update",
            next_step=f"use at most {target_batch} ranks, or a target of at least {world_size}",
        )


def _check_sharding(profile: Profile, world_size: int) -> None:
    """Fewer ranks hold larger shares of what is sharded: memory of more ranks says nothing."""
    if profile.parallel in ("none", "ddp") or world_size >= profile.ranks:
        return
    raise UsageError(
        f"a profile of {profile.parallel} over {profile.ranks} ranks does not answer for "
        f"{world_size}",
        found="each rank would hold a larger share of the model",
        next_step=f"add --world-size {profile.ranks}, or sweep again for {world_size}",
    )


def _samples_from_tokens(profile: Profile, target_tokens: int) -> tuple[int, tuple[Note, ...]]:
    tokens = profile.facts.tokens_per_sample if profile.facts else None
    if not tokens:
        raise UsageError(
            f"a target in tokens means nothing for {profile.workload.model}",
            found="the profile does not say how many tokens a sample has",
            next_step="give the target in samples with --target-batch",
        )
    if target_tokens < 1:
        raise UsageError(
            f"the target must be at least 1 token, not {target_tokens}",
            next_step="give the tokens per update, over all ranks (--target-tokens)",
        )
    samples = max(1, round(target_tokens / tokens))
    if samples * tokens == target_tokens:
        return samples, ()
    note = Note(
        code="target-tokens-rounded",
        message=f"{target_tokens:,} tokens are not a whole number of samples of {tokens:,} tokens; "
        f"the target is {samples:,} samples, which is {samples * tokens:,} tokens.",
    )
    return samples, (note,)


def _headroom(headroom: float | int, usable_bytes: int) -> tuple[float, int | None]:
    """Share and bytes of a headroom: a float is a share of usable memory, an int bytes."""
    if isinstance(headroom, int) and not isinstance(headroom, bool):
        if headroom < 0:
            raise UsageError(
                f"the headroom must not be negative, and is {format_bytes(headroom)}",
                next_step="leave nothing free with 0, or give bytes or a share to leave free",
            )
        if headroom >= usable_bytes:
            raise UsageError(
                f"a headroom of {format_bytes(headroom)} leaves nothing of the "
                f"{format_bytes(usable_bytes)} that are usable",
                next_step="leave less free, like --headroom 5%",
            )
        return headroom / usable_bytes, headroom
    if isinstance(headroom, bool) or not 0 <= headroom < 1:
        raise UsageError(
            f"the headroom must be a share from 0 to 1 or a number of bytes, not {headroom}",
            next_step="write 5 % as 0.05 and 2 GiB as 2 * 2**30 (an integer)",
        )
    return float(headroom), None


def _objective(objective: Objective | str) -> Objective:
    try:
        return Objective(objective)
    except ValueError:
        known = ", ".join(o.value for o in Objective)
        raise UsageError(f"unknown objective {objective!r}", next_step=f"use {known}") from None
