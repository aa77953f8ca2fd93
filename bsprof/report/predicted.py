"""What only a prediction has, as text and tables: terms, changes, modules, timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bsprof.recommend.wording import with_interval
from bsprof.records import Place, Point, Profile, Stage, Timeline
from bsprof.report.owners import live_bytes, ranked_modules, shares_text
from bsprof.report.tables import Column, Emphasis, Row, Table
from bsprof.report.words import PHASE_NAMES
from bsprof.units import format_bytes, format_share

_PLACES = {Place.ALLOCATOR: "in the allocator", Place.OUTSIDE: "outside the allocator"}


def drawn_point(profile: Profile, chosen: int | None) -> Point | None:
    """The point whose peak step is shown: the chosen one, else the largest that fits; or None.

    Only points that keep a timeline or modules count; one that does not fit comes last.
    """
    points = [p for p in profile.points if p.prediction and p.prediction.timeline is not None]
    points = points or [p for p in profile.points if p.prediction and p.prediction.top_modules]
    return max(
        points,
        key=lambda p: (p.micro_batch_size == chosen, p.is_ok, p.micro_batch_size),
        default=None,
    )


def terms_table(profile: Profile, point: Point | None) -> Table | None:
    """Every amount that no trace shows, with its source; those of one size among them."""
    terms = () if profile.prediction is None else profile.prediction.terms
    known = () if point is None or point.prediction is None else point.prediction.terms
    of_size = tuple(term for term in known if term not in terms)
    if not terms and not of_size:
        return None
    size = "" if point is None else f"{point.micro_batch_size:,}"
    rows = [
        Row(
            cells=(
                term.name,
                with_interval(term.bytes, format_bytes),
                _PLACES[term.place],
                at,
                term.source,
            )
        )
        for at, group in (("all", terms), (size, of_size))
        for term in group
    ]
    return Table(
        caption="Terms that no trace shows",
        columns=(
            Column(key="term", title="term", meaning="What the memory is.", numeric=False),
            Column(key="bytes", title="memory", meaning="With its 90 % interval."),
            Column(key="place", title="where", meaning="Who hands it out.", numeric=False),
            Column(key="size", title="micro-batch", meaning="The size it was predicted at."),
            Column(key="source", title="source", meaning="Where it comes from.", numeric=False),
        ),
        rows=tuple(rows),
    )


def changes_table(profile: Profile) -> Table | None:
    """What would make a size fit, as predicted; None where nothing was."""
    changes = () if profile.prediction is None else profile.prediction.changes
    if not changes:
        return None
    rows = [
        Row(
            cells=(
                change.name,
                " ".join(change.options),
                f"{change.micro_batch_size:,}",
                with_interval(change.device_used_bytes, format_bytes),
                _saved(change.saved_bytes.value),
                "fits" if change.fits else "does not fit",
            ),
            emphasis=Emphasis.CHOSEN if change.fits else Emphasis.NONE,
        )
        for change in changes
    ]
    return Table(
        caption="What would make it fit",
        columns=(
            Column(key="change", title="change", meaning="What is changed.", numeric=False),
            Column(key="options", title="options", meaning="Of `bsprof sweep`.", numeric=False),
            Column(key="micro_batch_size", title="micro-batch", meaning="At this size."),
            Column(key="used", title="memory used", meaning="With the change, with its interval."),
            Column(key="saved", title="saves", meaning="Against the workload as it is."),
            Column(key="fits", title="then", meaning="Whether that size fits.", numeric=False),
        ),
        rows=tuple(rows),
    )


def _saved(amount: float) -> str:
    return format_bytes(amount) if amount >= 0 else f"-{format_bytes(-amount)}"


def module_table(point: Point) -> Table | None:
    """The modules that hold most at the peak, with their share of the live bytes."""
    modules = ranked_modules(point)
    if not modules:
        return None
    total = live_bytes(point)
    rows = tuple(
        Row(cells=(name, format_bytes(held), format_share(held / total) if total else ""))
        for name, held in modules
    )
    return Table(
        caption=f"Modules at the peak, micro-batch {point.micro_batch_size:,}",
        columns=(
            Column(
                key="module",
                title="module",
                meaning="Whose forward made the tensors, or what their backward belongs to.",
                numeric=False,
            ),
            Column(key="bytes", title="live", meaning="Bytes that are live at the peak."),
            Column(key="share", title="share", meaning="Of all live bytes then."),
        ),
        rows=rows,
    )


def totals(timeline: Timeline) -> list[int]:
    """Live bytes of each sample, over all categories."""
    rows = [*timeline.bytes_by_category.values()]
    return [sum(now) for now in zip(*rows, strict=True)] if rows else []


def stage_name(stage: Stage) -> str:
    """A part of an update: `backward of micro-step 2`, `optimizer step`."""
    if stage.micro_step >= 0:
        way = "backward" if stage.backward else "forward"
        return f"{way} of micro-step {stage.micro_step + 1}"
    return "between updates" if stage.phase is None else PHASE_NAMES[stage.phase]


def stage_spans(timeline: Timeline, live: Sequence[int]) -> Iterator[tuple[Stage, int, int]]:
    """Each part that has samples, the sample it ends before, and the one with most live bytes.

    Args:
        live: `totals` of the timeline.
    """
    ends = [*(s.sample for s in timeline.stages[1:]), len(live)]
    for stage, end in zip(timeline.stages, ends, strict=True):
        if end > stage.sample:
            yield stage, end, max(range(stage.sample, end), key=lambda i: live[i])


def stage_table(point: Point) -> Table | None:
    """The peak step part by part: how much is live at most, and what holds it then."""
    timeline = None if point.prediction is None else point.prediction.timeline
    if timeline is None or not timeline.stages or not totals(timeline):
        return None
    live = totals(timeline)
    rows = []
    for stage, end, most in stage_spans(timeline, live):
        held = {c: row[most] for c, row in timeline.bytes_by_category.items()}
        rows.append(
            Row(
                cells=(
                    stage_name(stage),
                    format_bytes(live[stage.sample]),
                    format_bytes(live[most]),
                    shares_text(held, most=2),
                ),
                emphasis=Emphasis.CHOSEN if stage.sample <= timeline.peak < end else Emphasis.NONE,
            )
        )
    return Table(
        caption=f"The step with the peak, micro-batch {point.micro_batch_size:,}",
        columns=(
            Column(key="part", title="part", meaning="A part of the update.", numeric=False),
            Column(key="begin", title="live at its start", meaning="Bytes in live tensors."),
            Column(key="most", title="most live", meaning="The most at one moment of it."),
            Column(
                key="held", title="held by", meaning="Whose bytes they are then.", numeric=False
            ),
        ),
        rows=tuple(rows),
    )
