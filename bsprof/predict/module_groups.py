"""Modules that are repeats of each other, put together by their names (pure)."""

from __future__ import annotations

from collections.abc import Iterable

ANY = "*"
"""Stands in a name for the numbers that tell repeats apart: `blocks.*.mlp.up`."""


def grouped(modules: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Bytes of all modules whose names differ in numbers alone, the largest group first.

    A module without a repeat keeps its name; `""` is what no module made (the loss, gradients,
    what the optimizer keeps).

    Args:
        modules: Qualified name and bytes of each.
    """
    members: dict[str, list[tuple[str, int]]] = {}
    for name, held in modules:
        members.setdefault(pattern_of(name), []).append((name, held))
    groups = [
        (pattern if len(found) > 1 else found[0][0], sum(held for _, held in found))
        for pattern, found in members.items()
    ]
    return sorted(groups, key=lambda group: (-group[1], group[0]))


def pattern_of(name: str) -> str:
    """The name of a module's group: its own, with `*` for numbers."""
    return ".".join(ANY if part.isdigit() else part for part in name.split("."))
