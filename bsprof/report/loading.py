"""The measured data loader as tables and one fact; pure Python, no layout."""

from __future__ import annotations

from bsprof.fit.loader import Supply, Verdict, by_workers, supply
from bsprof.records import Point, Profile
from bsprof.report.tables import Column, Emphasis, Row, Table
from bsprof.report.words import best_point, quantity_text
from bsprof.units import format_count, format_seconds

_SETTING_COLUMNS = (
    Column(key="batch_size", title="batch", meaning="Samples in a batch of the loader."),
    Column(
        key="num_workers",
        title="workers",
        meaning="Processes that load in the background; with none, training loads itself.",
    ),
    Column(
        key="prefetch_factor",
        title="prefetch",
        meaning="Batches that each worker loads ahead.",
    ),
    Column(
        key="samples_per_s",
        title="loader samples/s",
        meaning="What the loader gives, alone, once the first batches are through.",
    ),
    Column(
        key="first_batch_s",
        title="first batch",
        meaning="From the start of an epoch to its first batch, start of the workers included.",
    ),
)
_SUPPLY_COLUMNS = (
    Column(
        key="micro_batch_size",
        title="micro-batch",
        meaning="Samples in one forward and backward on one device.",
    ),
    Column(
        key="need",
        title="samples/s taken",
        meaning="What the device takes at this size, with accumulation of one.",
    ),
    Column(
        key="samples_per_s",
        title="samples/s given",
        meaning="What the loader gives with the number of workers that the size runs fastest with.",
    ),
    Column(key="num_workers", title="with workers", meaning="That number of workers."),
    Column(
        key="fewest",
        title="fewest workers",
        meaning="The fewest measured workers that keep up beyond doubt.",
    ),
    Column(
        key="verdict",
        title="verdict",
        meaning="Whether the device would wait for data.",
        numeric=False,
    ),
)


def loader_tables(profile: Profile) -> tuple[Table, ...]:
    """The loader by setting, then against what each micro-batch takes; none without a loader."""
    if not profile.loader:
        return ()
    ordered = sorted(
        profile.loader, key=lambda p: (p.batch_size, p.num_workers, p.prefetch_factor or 0)
    )
    settings = [
        Row(
            cells=(
                f"{p.batch_size:,}",
                f"{p.num_workers:,}",
                f"{p.prefetch_factor:,}" if p.prefetch_factor else "",
                quantity_text(p.samples_per_s, format_count),
                format_seconds(p.first_batch_s),
            )
        )
        for p in ordered
    ]
    sizes = [
        _supply_row(p, found)
        for p in profile.ok_points()
        if (found := _supply_at(profile, p)) is not None
    ]
    tables = [Table(caption="Data loader", columns=_SETTING_COLUMNS, rows=tuple(settings))]
    if sizes:
        caption = "What each micro-batch takes, and the data loader gives"
        tables.append(Table(caption=caption, columns=_SUPPLY_COLUMNS, rows=tuple(sizes)))
    return tuple(tables)


def loader_fact(profile: Profile) -> str:
    """The loader at the best size in one line; empty where it was not measured."""
    best = best_point(profile)
    found = _supply_at(profile, best) if best else None
    if found is None or best is None:
        return ""
    enough = found.fewest or found.best
    given = quantity_text(enough.samples_per_s, format_count)
    return (
        f"{given} samples/s {by_workers(enough.num_workers)} at micro-batch "
        f"{best.micro_batch_size:,}, measured alone: {found.verdict}"
    )


def _supply_at(profile: Profile, point: Point) -> Supply | None:
    if point.samples_per_s is None:
        return None
    return supply(profile.loader, point.micro_batch_size, point.samples_per_s)


def _supply_row(point: Point, found: Supply) -> Row:
    fewest = found.fewest
    return Row(
        cells=(
            f"{point.micro_batch_size:,}",
            quantity_text(found.need, format_count),
            quantity_text(found.best.samples_per_s, format_count),
            f"{found.best.num_workers:,}",
            "none" if fewest is None else f"{fewest.num_workers:,}",
            str(found.verdict),
        ),
        emphasis=Emphasis.EDGE if found.verdict is Verdict.WAITS else Emphasis.NONE,
    )
