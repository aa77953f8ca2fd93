"""The tables of a report and of the terminal, as text cells; pure Python, no layout.

A column that no point has a value for is left out, so a profile without peaks shows no MFU column
rather than an empty one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from bsprof.records import (
    Alternative,
    Origin,
    Plan,
    Point,
    Profile,
    Quantity,
    Recommendation,
)
from bsprof.report.owners import NO_MODULE, owner_text, ranked_modules
from bsprof.report.words import (
    PHASE_NAMES,
    failure_text,
    joules,
    quantity_text,
    regime_text,
    spread_text,
    status_text,
)
from bsprof.units import format_bytes, format_count, format_seconds, format_share


class Emphasis(StrEnum):
    """How a row stands out: the recommended size, one that did not run, one at the edge."""

    NONE = "none"
    CHOSEN = "chosen"
    FAILED = "failed"
    EDGE = "edge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column; `numeric` cells are right-aligned, `meaning` is one sentence for a legend."""

    key: str
    title: str
    meaning: str
    numeric: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of text cells, as many as there are columns."""

    cells: tuple[str, ...]
    emphasis: Emphasis = Emphasis.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns and rows of text, with a caption of a few words."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def point_table(profile: Profile, chosen: int | None = None) -> Table:
    """All points of a profile, failed ones with the reason.

    Args:
        profile: The points, in their own order.
        chosen: The recommended micro-batch size, whose row stands out; None when there is none.
    """
    shown = tuple((_by_the_sheet(column, profile), write) for column, write in _POINT_COLUMNS)
    if profile.origin is Origin.PREDICTED:
        shown = (*shown[:-1], *_PREDICTED_COLUMNS, shown[-1])
    rows = [
        Row(
            cells=tuple(write(point) for _, write in shown),
            emphasis=_emphasis(point, chosen),
        )
        for point in profile.points
    ]
    return _without_empty_columns(
        "All points", tuple(column for column, _ in shown), rows, keep=_ALWAYS_SHOWN
    )


def _by_the_sheet(column: Column, profile: Profile) -> Column:
    """The column, its meaning told of peaks that are a data sheet's."""
    if column.key != "mfu" or profile.peaks is None or profile.peaks.are_measured:
        return column
    return replace(column, meaning="Model FLOP/s over the peak of the device's data sheet.")


def alternative_table(recommendation: Recommendation) -> Table:
    """The chosen plan and what it beat, fastest first; without times as they are given."""
    plan = recommendation.plan
    ordered = sorted(recommendation.alternatives, key=_update_seconds)
    rows = [_plan_row(plan, "", "recommended", Emphasis.CHOSEN)]
    rows += [_plan_row(a.plan, slower_text(a.slower_by), a.reason, Emphasis.NONE) for a in ordered]
    caption = f"Plans for {plan.effective_batch_size:,} samples per update"
    return _without_empty_columns(caption, _PLAN_COLUMNS, rows, keep=frozenset())


def reasons_across(table: Table) -> tuple[Table, dict[Row, str]]:
    """The table with the reason of rows without numbers set across their empty cells.

    Returns the table, in which those rows keep only their first two cells, and their reasons.
    The column of reasons goes when no other row needs it.
    """
    if len(table.columns) < 4 or table.columns[-1].key != "reason":
        return table, {}
    rows, reasons, needed = [], {}, False
    for row in table.rows:
        if row.cells[-1] and not any(row.cells[2:-1]):
            rows.append(replace(row, cells=row.cells[:2]))
            reasons[rows[-1]] = row.cells[-1]
        else:
            rows.append(row)
            needed = needed or bool(row.cells[-1])
    columns = table.columns if needed else table.columns[:-1]
    shown = tuple(replace(row, cells=row.cells[: len(columns)]) for row in rows)
    return replace(table, columns=columns, rows=shown), reasons


def _without_empty_columns(
    caption: str, columns: tuple[Column, ...], rows: list[Row], *, keep: frozenset[str]
) -> Table:
    shown = [
        index
        for index, column in enumerate(columns)
        if column.key in keep or any(row.cells[index] for row in rows)
    ]
    return Table(
        caption=caption,
        columns=tuple(columns[i] for i in shown),
        rows=tuple(
            Row(cells=tuple(row.cells[i] for i in shown), emphasis=row.emphasis) for row in rows
        ),
    )


def _plan_row(plan: Plan, slower_by: str, verdict: str, emphasis: Emphasis) -> Row:
    interpolated = " (interpolated)" if plan.interpolated else ""
    return Row(
        cells=(
            f"{plan.micro_batch_size:,}{interpolated}",
            f"{plan.accumulation_steps:,}",
            quantity_text(plan.step_time_s, format_seconds),
            quantity_text(plan.samples_per_s, format_count),
            slower_by,
            quantity_text(plan.device_used_bytes, format_bytes),
            quantity_text(plan.energy_j, joules),
            verdict,
        ),
        emphasis=emphasis,
    )


def _update_seconds(alternative: Alternative) -> float:
    time = alternative.plan.step_time_s
    return 0.0 if time is None else time.value


def slower_text(slower_by: Quantity | None) -> str:
    """How much slower than the chosen plan, with the interval: `+2.1 % (1.0 to 3.2)`."""
    if slower_by is None:
        return ""
    value, low, high = (100 * v for v in (slower_by.value, slower_by.low, slower_by.high))
    interval = "" if low == high else f" ({low:+.1f} to {high:+.1f})"
    return f"{value:+.1f} %{interval}"


def _emphasis(point: Point, chosen: int | None) -> Emphasis:
    if point.micro_batch_size == chosen and point.is_ok:
        return Emphasis.CHOSEN
    if point.is_ok:
        return Emphasis.NONE
    return Emphasis.EDGE if point.alloc_retries else Emphasis.FAILED


def _share(quantity: Quantity | None) -> str:
    if quantity is None:
        return ""
    flag = " (above 1)" if quantity.value > 1 else ""
    return f"{format_share(quantity.value)} {spread_text(quantity)}".rstrip() + flag


def _phase(point: Point) -> str:
    return "" if point.peak_phase is None else PHASE_NAMES[point.peak_phase]


def _top_module(point: Point) -> str:
    ranked = [found for found in ranked_modules(point) if found[0] != NO_MODULE]
    return f"{ranked[0][0]} {format_bytes(ranked[0][1])}" if ranked else ""


_ALWAYS_SHOWN = frozenset({"micro_batch_size", "status"})

_POINT_COLUMNS: tuple[tuple[Column, Callable[[Point], str]], ...] = (
    (
        Column(
            key="micro_batch_size",
            title="micro-batch",
            meaning="Samples in one forward and backward on one device.",
        ),
        lambda p: f"{p.micro_batch_size:,}",
    ),
    (
        Column(key="status", title="status", meaning="How the size ended.", numeric=False),
        status_text,
    ),
    (
        Column(
            key="samples_per_s",
            title="samples/s",
            meaning="Micro-batch over micro-step plus optimizer step: accumulation of one.",
        ),
        lambda p: quantity_text(p.samples_per_s, format_count),
    ),
    (
        Column(
            key="micro_step_s",
            title="micro-step",
            meaning="Time of one forward and backward.",
        ),
        lambda p: quantity_text(p.micro_step_s, format_seconds),
    ),
    (
        Column(
            key="micro_step_sync_s",
            title="with sync",
            meaning="Time of the micro-step that also synchronises gradients between ranks.",
        ),
        lambda p: quantity_text(p.micro_step_sync_s, format_seconds),
    ),
    (
        Column(
            key="optimizer_step_s",
            title="optimizer step",
            meaning="Time of one optimizer step.",
        ),
        lambda p: quantity_text(p.optimizer_step_s, format_seconds),
    ),
    (
        Column(key="compile_s", title="compile", meaning="Time spent compiling this size."),
        lambda p: quantity_text(p.compile_s, format_seconds),
    ),
    (
        Column(
            key="device_used_bytes",
            title="memory used",
            meaning="Peak that counts against the memory limit.",
        ),
        lambda p: quantity_text(p.device_used_bytes, format_bytes),
    ),
    (
        Column(
            key="peak_allocated_bytes",
            title="allocated",
            meaning="Most bytes in live tensors.",
        ),
        lambda p: quantity_text(p.peak_allocated_bytes, format_bytes),
    ),
    (
        Column(
            key="peak_reserved_bytes",
            title="reserved",
            meaning="Most bytes the caching allocator held.",
        ),
        lambda p: quantity_text(p.peak_reserved_bytes, format_bytes),
    ),
    (
        Column(
            key="peak_phase",
            title="peak in",
            meaning="The phase of an update in which memory peaks.",
            numeric=False,
        ),
        _phase,
    ),
    (
        Column(
            key="arithmetic_intensity",
            title="FLOP/B",
            meaning="Arithmetic intensity: FLOPs over bytes moved to and from memory.",
        ),
        lambda p: quantity_text(p.arithmetic_intensity, format_count),
    ),
    (
        Column(
            key="mfu",
            title="MFU",
            meaning="Model FLOP/s over the device's measured peak.",
        ),
        lambda p: _share(p.mfu),
    ),
    (
        Column(
            key="hfu",
            title="HFU",
            meaning="The same with recomputation counted.",
        ),
        # Without recomputation it is the MFU once more.
        lambda p: "" if p.hfu == p.mfu else _share(p.hfu),
    ),
    (
        Column(
            key="regime",
            title="regime",
            meaning="The resource that binds: launch, bandwidth or compute.",
            numeric=False,
        ),
        regime_text,
    ),
    (
        Column(
            key="energy_j",
            title="energy",
            meaning="Energy of an update with accumulation of one.",
        ),
        lambda p: quantity_text(p.energy_j, joules),
    ),
    (
        Column(
            key="reason",
            title="reason",
            meaning="Why the size has no numbers, or is not recommended.",
            numeric=False,
        ),
        failure_text,
    ),
)

_PREDICTED_COLUMNS: tuple[tuple[Column, Callable[[Point], str]], ...] = (
    (
        Column(
            key="owner",
            title="held by",
            meaning="The category with most live bytes at the peak, and its share of them.",
            numeric=False,
        ),
        owner_text,
    ),
    (
        Column(
            key="top_module",
            title="largest module",
            meaning="The module that made most of what is live at the peak.",
            numeric=False,
        ),
        _top_module,
    ),
)
"""Before the reason, in profiles that were predicted."""

_PLAN_COLUMNS: tuple[Column, ...] = (
    Column(key="micro_batch_size", title="micro-batch", meaning="The largest piece."),
    Column(
        key="accumulation_steps",
        title="accumulation",
        meaning="Micro-steps per rank and update.",
    ),
    Column(key="step_time_s", title="update", meaning="Time of a whole optimizer step."),
    Column(key="samples_per_s", title="samples/s", meaning="Over all ranks."),
    Column(
        key="slower_by",
        title="slower by",
        meaning="Against the recommended plan, with the 90 % interval of the paired difference.",
    ),
    Column(
        key="device_used_bytes",
        title="memory used",
        meaning="Peak that counts against the memory limit.",
    ),
    Column(key="energy_j", title="energy", meaning="Of an update, over all ranks."),
    Column(key="reason", title="verdict", meaning="Why it was not chosen.", numeric=False),
)
