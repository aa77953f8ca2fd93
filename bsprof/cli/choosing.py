"""From what `bsprof recommend` was asked to its answer: of one profile, the best, or all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bsprof.errors import UsageError

if TYPE_CHECKING:
    from bsprof.frameworks import Settings
    from bsprof.recommend.advice import Situation
    from bsprof.records import Profile, Recommendation
    from bsprof.report.summary import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """Options beside the target.

    Attributes:
        prices: Per hour, by device.
        mixed: Ranks of each profile, as `4,4`; None chooses one profile.
        framework: Name of a framework that settings are wanted for.
        objective: Of the choice.
    """

    prices: Mapping[str, float]
    mixed: str | None
    framework: str | None
    objective: str

    def check(self, *, profiles: int) -> None:
        """Refuse what cannot be answered before anything is read or predicted.

        Raises:
            UsageError: an unknown framework, or options that need several profiles.
        """
        if self.framework is not None:
            from bsprof.cli.parse import one_of
            from bsprof.frameworks import framework_names

            one_of("framework", self.framework, framework_names())
        if self.mixed is not None and profiles < 2:
            raise UsageError(
                "--mixed needs a profile of each kind of device",
                next_step="repeat --profile, in the order of the ranks",
            )

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks of each profile.

        Raises:
            UsageError: no whole numbers above zero.
        """
        parts = (self.mixed or "").split(",")
        if not all(part.isdecimal() and int(part) for part in parts):
            raise UsageError(
                f"cannot read --mixed {self.mixed!r}",
                next_step="write the ranks of each profile with commas between: 4,4",
            )
        return tuple(int(part) for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What the command shows.

    Attributes:
        answer: The recommendation.
        profile: What it was read from; None where it is of several.
        document: For `--json` and `-o`.
        settings: For `--for`; None without it.
        table: The comparison that the profile was chosen by; None for one profile.
    """

    answer: Recommendation
    profile: Profile | None
    document: dict[str, Any]
    settings: Settings | None = None
    table: Summary | None = None


def answer_for(
    chosen: Sequence[tuple[str, Profile]],
    extras: Extras,
    *,
    situation: Situation,
    **question: Any,
) -> Answered:
    """The answer to a question that `recommend_plan` takes.

    Raises:
        As `recommend_plan`, `compare_profiles` and `settings_for`.
    """
    from bsprof.recommend.document import recommendation_document
    from bsprof.recommend.plan import recommend_plan

    if extras.mixed is not None:
        return _mixed(chosen, extras, question)
    table, comparison = None, None
    name, profile = chosen[0]
    if extras.prices or len(chosen) > 1:
        from bsprof.recommend.ranking import prices_of

        prices_of(extras.prices, [found for _, found in chosen])
    if len(chosen) > 1:
        (name, profile), comparison, table = _best(chosen, extras, question)
    answer = recommend_plan(
        profile,
        **question,
        objective=extras.objective,
        profile_name=name,
        situation=situation,
    )
    document = recommendation_document(answer)
    if comparison is not None:
        document["devices"] = comparison
    settings = None
    if extras.framework is not None:
        from bsprof.frameworks import settings_for

        settings = settings_for(answer, profile, extras.framework)
        document["settings"] = _settings(settings)
    return Answered(
        answer=answer, profile=profile, document=document, settings=settings, table=table
    )


def _best(
    chosen: Sequence[tuple[str, Profile]], extras: Extras, question: Mapping[str, Any]
) -> tuple[tuple[str, Profile], dict[str, Any], Summary]:
    from bsprof.recommend.compare import compare_profiles
    from bsprof.recommend.compare_document import comparison_document
    from bsprof.recommend.several import best_of
    from bsprof.records import Objective
    from bsprof.report.comparison import comparison_summary

    comparison = compare_profiles(
        chosen,
        target_batch=question["target_batch"],
        target_tokens=question["target_tokens"],
        world_size=question["world_size"],
        headroom=question["headroom"],
        prices=extras.prices,
    )
    found = chosen[best_of(comparison, Objective(extras.objective))]
    return found, comparison_document(comparison), comparison_summary(comparison)


def _mixed(
    chosen: Sequence[tuple[str, Profile]], extras: Extras, question: Mapping[str, Any]
) -> Answered:
    from bsprof.frameworks import settings_for
    from bsprof.frameworks.expressed import is_equal
    from bsprof.recommend.document import recommendation_document
    from bsprof.recommend.mixed import recommend_mixed

    answer = recommend_mixed(
        chosen,
        extras.ranks,
        target_batch=question["target_batch"],
        target_tokens=question["target_tokens"],
        headroom=question["headroom"],
    )
    document = recommendation_document(answer)
    settings = None
    if extras.framework is not None:
        if extras.framework not in ("pytorch", "composer") and not is_equal(answer.plan.pieces):
            raise UsageError(
                f"--for {extras.framework} runs the same pieces on every rank, and this plan's "
                "follow the speed of its devices",
                next_step="use --for pytorch or composer, or leave --mixed out",
            )
        settings = settings_for(answer, chosen[0][1], extras.framework)
        document["settings"] = _settings(settings)
    return Answered(answer=answer, profile=None, document=document, settings=settings)


def _settings(settings: Settings) -> dict[str, Any]:
    return {
        "framework": settings.framework,
        "digest": settings.digest,
        "micro_batch_size": settings.micro_batch_size,
        "accumulation_steps": settings.accumulation_steps,
        "effective_batch_size": settings.effective_batch_size,
        "exact": settings.is_exact,
        "text": settings.text,
    }
