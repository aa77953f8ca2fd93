"""`bsprof report`: profiles as a page, a picture or a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bsprof.cli.options import Color, Debug, Force, Json, Quiet, Verbose, terminal_of
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
            help="report.html, .md, .png or .csv; - for stdout, with --format.",
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
            "--format", metavar="html|md|png|csv", help="Format.", show_default="FILE's ending"
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

    if as_json and output == STDOUT:
        raise UsageError(
            "--json and -o - both want stdout", next_step="write the report to a file, or drop one"
        )
    kind = _format(output, report_format)
    check_output(output, force=force)
    names: list[str | None] = [*profiles] if profiles else [None]
    chosen = [chosen_profile(terminal, name) for name in names]
    answer = _recommendation(chosen, target_batch, target_tokens, world_size, headroom)
    write_output(output, render(kind, build_report(chosen, answer)), terminal)
    if as_json:
        terminal.answer(_document(output, kind, chosen, answer))


def _format(output: str, wanted: str | None) -> str:
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
        "format": str(kind),
        "output": output,
        "profiles": [name for name, _ in chosen],
        "recommendation": None if answer is None else recommendation_document(answer),
    }
    return json.dumps(document, indent=1, sort_keys=True)


def _recommendation(
    chosen: list[tuple[str, Profile]],
    target_batch: int | None,
    target_tokens: int | None,
    world_size: int | None,
    headroom: str | None,
) -> Recommendation | None:
    """The answer to show, if a target was given; for one profile only."""
    if target_batch is None and target_tokens is None:
        if world_size is not None or headroom is not None:
            raise UsageError(
                "--world-size and --headroom have no effect without a target",
                next_step="add --target-batch or --target-tokens",
            )
        return None
    if len(chosen) != 1:
        raise UsageError(
            f"a report of {len(chosen)} profiles shows no recommendation",
            next_step="name one profile, or leave the target out",
        )
    from bsprof.recommend.plan import recommend_plan
    from bsprof.recommend.target import DEFAULT_HEADROOM
    from bsprof.units import parse_share_or_bytes

    [(name, profile)] = chosen
    return recommend_plan(
        profile,
        target_batch=target_batch,
        target_tokens=target_tokens,
        world_size=world_size or 1,
        headroom=DEFAULT_HEADROOM if headroom is None else parse_share_or_bytes(headroom),
        profile_name=name,
    )
