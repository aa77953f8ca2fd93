"""What a comparison holds: each profile with its answer, and all of them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bsprof.errors import BsprofError
from bsprof.recommend.by_size import AgainstMeasured, SizePoints
from bsprof.recommend.differences import Difference
from bsprof.recommend.ranking import Ranking
from bsprof.records import Note, Plan, Profile, Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedProfile:
    """One profile of a comparison.

    Attributes:
        name: Its name in the store.
        label: The shortest text that tells it from the others.
        profile: The profile itself.
        plan: With a target the recommended plan; without one, one micro-batch of the fastest
            size per update (of the largest that leaves the usual headroom where no time is
            known). None where the profile has no answer; `error` then says why.
        rate_per_s: What is compared, in samples or tokens per second: of the plan, or without a
            target of its micro-steps alone, which many accumulation steps approach. None without
            an answer, and where no time is known.
        knee: Smallest size that reaches most of the throughput; None where it does not show.
        rate_worlds: `rate_per_s` in each world (see `bsprof.predict.scenarios`).
        price_per_hour: Of one device; None where none was given for it.
        cost_per_million: Of samples or tokens, as `unit` says; None without a price or a rate.
        ratio: `rate_per_s` over that of the first profile with an answer; None without both.
        verdict: The ratio as a sentence without a full stop; empty for that first profile.
        error: Why there is no answer; None where there is one.
        remarks: What the plan's own notes say that bears on the comparison.
    """

    name: str
    label: str
    profile: Profile
    plan: Plan | None = None
    rate_per_s: Quantity | None = None
    knee: Quantity | None = None
    rate_worlds: tuple[float, ...] = ()
    price_per_hour: float | None = None
    cost_per_million: Quantity | None = None
    ratio: Quantity | None = None
    verdict: str = ""
    error: BsprofError | None = None
    remarks: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Several profiles side by side.

    Attributes:
        title: Which is the fastest, one sentence without a full stop.
        unit: What is counted per second: tokens where samples have different numbers of them.
        target_batch, target_tokens: What was asked, per update over all ranks; both None
            compares the fastest sizes.
        world_size: Data-parallel ranks.
        profiles: In the order given, at least two.
        differences: What is not the same in all of them.
        notes: What makes the comparison unequal, or leaves something out.
        by_size: All sizes with their points; empty where all profiles were measured.
        against: Predicted profiles against measured ones of the same workload.
        rankings: By time where at least two profiles have a rate; by cost where two have a cost.
    """

    title: str
    unit: Literal["sample", "token"]
    target_batch: int | None
    target_tokens: int | None
    world_size: int
    profiles: tuple[ComparedProfile, ...]
    differences: tuple[Difference, ...]
    notes: tuple[Note, ...]
    by_size: tuple[SizePoints, ...] = ()
    against: tuple[AgainstMeasured, ...] = ()
    rankings: tuple[Ranking, ...] = ()

    @property
    def has_target(self) -> bool:
        """Whether plans for a target are compared, not the fastest sizes."""
        return self.target_batch is not None or self.target_tokens is not None

    def raise_for_status(self) -> None:
        """Raise why the first profile has no answer, when not one of them has."""
        errors = [p.error for p in self.profiles if p.error is not None]
        if len(errors) == len(self.profiles):
            raise errors[0]


def tokens_of(entry: ComparedProfile) -> int | None:
    """Tokens per sample; None where that is not known, or samples have none."""
    facts = entry.profile.facts
    return None if facts is None else facts.tokens_per_sample
