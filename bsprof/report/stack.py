"""What a point's memory is made of, from the weights up to the context; pure Python."""

from __future__ import annotations

from dataclasses import dataclass

from bsprof.records import Point, Profile
from bsprof.report.tables import Column, Emphasis, Row, Table
from bsprof.report.theme import CATEGORY_ROLES
from bsprof.report.words import quantity_text, status_text
from bsprof.units import format_bytes

CACHED = "cached"
OUTSIDE = "context"
LAYERS = {
    **{category.words: role for category, role in CATEGORY_ROLES.items()},
    CACHED: "cached",
    OUTSIDE: "outside",
}
"""Name and colour role of every layer, the lowest first."""

_MEANINGS = {
    CACHED: "What the allocator holds at its own peak beyond the live bytes: rounding, fragments.",
    OUTSIDE: "Outside the allocator: context, loaded kernels, libraries.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One layer of the stack: its name, its colour role and its bytes."""

    name: str
    role: str
    bytes: float


def stack(point: Point) -> tuple[Part, ...]:
    """The layers of a point's peak, lowest first; they add up to what the device holds.

    Live bytes by category at the allocated peak, then what the allocator keeps beyond them, then
    what lies outside it. Layers that are not known, or empty, are left out.
    """
    held = point.peak_by_category_bytes
    parts = [
        Part(name=category.words, role=role, bytes=held[category])
        for category, role in CATEGORY_ROLES.items()
        if held.get(category)
    ]
    below = sum(part.bytes for part in parts)
    for name, role, quantity in (
        (CACHED, "cached", point.peak_reserved_bytes),
        (OUTSIDE, "outside", point.device_used_bytes),
    ):
        if quantity is not None and quantity.value > below:
            parts.append(Part(name=name, role=role, bytes=quantity.value - below))
            below = quantity.value
    return tuple(parts)


def stack_table(profile: Profile, chosen: int | None = None) -> Table | None:
    """Every size with its layers in bytes; None where no point knows them."""
    stacks = {p.micro_batch_size: stack(p) for p in profile.points if p.peak_by_category_bytes}
    if not stacks:
        return None
    held = {part.name for layers in stacks.values() for part in layers}
    shown = [name for name in LAYERS if name in held]
    rows = []
    for point in profile.points:
        layers = {part.name: part.bytes for part in stacks.get(point.micro_batch_size, ())}
        if layers:
            rows.append(_row(point, [layers.get(name) for name in shown], chosen))
    return Table(
        caption="What the peak is made of",
        columns=(
            Column(key="micro_batch_size", title="micro-batch", meaning="Samples of a micro-step."),
            *(
                Column(key=n.replace(" ", "_"), title=n, meaning=_MEANINGS.get(n, "Live bytes."))
                for n in shown
            ),
            Column(
                key="device_used_bytes",
                title="together",
                meaning="Peak that counts against the memory limit.",
            ),
            Column(key="status", title="status", meaning="Whether it fits.", numeric=False),
        ),
        rows=tuple(rows),
    )


def _row(point: Point, amounts: list[float | None], chosen: int | None) -> Row:
    return Row(
        cells=(
            f"{point.micro_batch_size:,}",
            *("" if amount is None else format_bytes(amount) for amount in amounts),
            quantity_text(point.device_used_bytes, format_bytes),
            status_text(point),
        ),
        emphasis=Emphasis.CHOSEN
        if point.micro_batch_size == chosen
        else Emphasis.NONE
        if point.is_ok
        else Emphasis.FAILED,
    )
