"""`bsprof report`: profiles as a page, a picture or a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bsprof.cli.options import (
    DOCUMENT_SCHEMA,
    Color,
    Debug,
    Force,
    Json,
    Quiet,
    Verbose,
    beaten,
    json_wanted,
    on_command_line,
    refuse_without_target,
    terminal_of,
)
from bsprof.errors import UsageError

if TYPE_CHECKING:
    from bsprof.records import Profile, Recommendation

EXAMPLE = "bsprof report --target-batch 2048 -o report.html"


def command(
    ctx: typer.Context,
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="report.html, .pdf, .md, .png or .csv; - for stdout, with --format.",
        ),
    ],
    profiles: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROFILE]...",
            help="Files, or names in the store.",
            show_default="the newest",
        ),
    ] = None,
    report_format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="html|pdf|md|png|csv", help="Format.", show_default="FILE's ending"
        ),
    ] = None,
    target_batch: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Show the recommendation for this target."),
    ] = None,
    target_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The same in tokens.")
    ] = None,
    world_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Data-parallel ranks.", show_default="1")
    ] = None,
    headroom: Annotated[
        str | None,
        typer.Option(metavar="5%|2GiB", help="Usable memory to leave free.", show_default="5%"),
    ] = None,
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="0%",
            help="How far the effective batch may be off the target.",
            show_default="0%",
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="time|memory", help="What the best plan minimises.", show_default="time"
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    debug: Debug = False,
    color: Color = "auto",
) -> None:
    """Write a report of profiles.

    Curves with fits, memory with its limit, knee, points and environment; with a target, the
    recommendation.
    """
    terminal = terminal_of(ctx, quiet=quiet, verbose=verbose, debug=debug, color=color)
    from bsprof.cli.choice import chosen_profile
    from bsprof.cli.output import STDOUT, check_output, write_output
    from bsprof.report import build_report, render

    as_json = json_wanted(ctx, as_json=as_json, to_stdout=output == STDOUT)
    kind = format_of(output, report_format)
    check_output(output, force=force)
    names: list[str | None] = [*profiles] if profiles else [None]
    chosen = [chosen_profile(terminal, name) for name in names]
    question = _Question(
        target_batch=target_batch,
        target_tokens=target_tokens,
        world_size=world_size,
        headroom=headroom,
        tolerance=tolerance,
        objective=objective,
    )
    answer = _recommendation(ctx, chosen, question)
    write_output(output, render(kind, build_report(chosen, answer)), terminal)
    if as_json:
        terminal.answer(_document(output, kind, chosen, answer))


def format_of(output: str, wanted: str | None) -> str:
    """The format of a report: the one asked for, else the ending of the file.

    Raises:
        UsageError: no such format, or neither says one.
    """
    from bsprof.cli.output import STDOUT
    from bsprof.cli.parse import one_of
    from bsprof.report.export import FORMATS

    if wanted is not None:
        return one_of("format", wanted, FORMATS)
    ending = Path(output).suffix.removeprefix(".").lower()
    if output == STDOUT or not ending:
        raise UsageError(
            f"{output!r} does not say the format of the report",
            next_step=f"add --format {' or '.join(FORMATS)}",
        )
    return one_of("format of a report", ending, FORMATS)


def _document(
    output: str, kind: str, chosen: list[tuple[str, Profile]], answer: Recommendation | None
) -> str:
    import json

    from bsprof.recommend.document import recommendation_document

    document = {
        "schema": DOCUMENT_SCHEMA,
        "format": str(kind),
        "output": output,
        "profiles": [name for name, _ in chosen],
        "recommendation": None if answer is None else recommendation_document(answer),
    }
    return json.dumps(document, indent=1, sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """The options of a recommendation as they were given; None where they were not."""

    target_batch: int | None
    target_tokens: int | None
    world_size: int | None
    headroom: str | None
    tolerance: str | None
    objective: str | None


_TARGETS = ("target_batch", "target_tokens")
_DETAILS = ("world_size", "headroom", "tolerance", "objective")  # without effect alone


def _recommendation(
    ctx: typer.Context, chosen: list[tuple[str, Profile]], question: _Question
) -> Recommendation | None:
    """The answer to show, if a target was given; for one profile only."""
    lost = beaten(ctx, ("target_batch",), ("target_tokens",))
    target_batch, target_tokens = (
        None if name in lost else getattr(question, name) for name in _TARGETS
    )
    if target_batch is None and target_tokens is None:
        refuse_without_target(ctx, _DETAILS)
        return None
    if len(chosen) != 1:
        if not on_command_line(ctx, *_TARGETS):
            return None  # a configured target is for reports of one profile
        raise UsageError(
            f"a report of {len(chosen)} profiles shows no recommendation",
            next_step="name one profile, or use `bsprof compare` with the target",
        )
    from bsprof.cli.parse import one_of
    from bsprof.recommend.plan import recommend_plan
    from bsprof.records import DEFAULT_HEADROOM
    from bsprof.units import parse_share, parse_share_or_bytes

    [(name, profile)] = chosen
    headroom, tolerance = question.headroom, question.tolerance
    return recommend_plan(
        profile,
        target_batch=target_batch,
        target_tokens=target_tokens,
        world_size=question.world_size or 1,
        headroom=DEFAULT_HEADROOM if headroom is None else parse_share_or_bytes(headroom),
        tolerance=0.0 if tolerance is None else parse_share(tolerance),
        objective=one_of("objective", question.objective or "time", ("time", "memory")),
        profile_name=name,
    )
