"""Which modules are sharded together: blocks that repeat in a model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence


def find_units(module_names: Iterable[str]) -> tuple[str, ...]:
    """Prefixes of the outermost blocks that repeat, in order of their names' first appearance.

    A list whose numbered members include two with the same modules inside is one of repeated
    blocks: `layers.0 ... layers.31`. A list of plain layers, such as a Sequential, is not.
    """
    names = list(dict.fromkeys(module_names))
    inside: dict[str, set[str]] = defaultdict(set)
    for name in names:
        parts = name.split(".")
        for end, part in enumerate(parts, start=1):
            if part.isdecimal():
                inside[".".join(parts[:end])].add(".".join(parts[end:]))
    siblings: dict[str, list[str]] = defaultdict(list)
    for prefix in inside:
        siblings[prefix.rpartition(".")[0]].append(prefix)
    units: list[str] = []
    for members in sorted(siblings.values(), key=lambda found: found[0].count(".")):
        shapes = [frozenset(inside[member] - {""}) for member in members]
        repeats = any(shape and shapes.count(shape) > 1 for shape in shapes)
        if repeats and not any(is_inside(members[0], unit) for unit in units):
            units += members
    return tuple(units)


def is_inside(name: str, unit: str) -> bool:
    """Whether a module is a unit or lies in it."""
    return name == unit or name.startswith(unit + ".")


def unit_of(name: str, units: Sequence[str]) -> int:
    """Index of the innermost unit that a module lies in; -1 for the rest of the model."""
    found = [index for index, unit in enumerate(units) if is_inside(name, unit)]
    return max(found, key=lambda index: len(units[index]), default=-1)
