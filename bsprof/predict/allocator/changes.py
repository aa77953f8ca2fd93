"""Segments that came or went, compared and told."""

from __future__ import annotations

from collections.abc import Sequence

from bsprof.predict.allocator.following import RELEASES
from bsprof.predict.allocator.recording import Entry

Change = tuple[str, int, int, int]
"""A segment that came or went: action, address, size, stream."""


def grouped(changes: Sequence[Change]) -> list[tuple[Change, ...]]:
    """Releases in a row as one sorted group, every grant as its own."""
    groups: list[list[Change]] = []
    row: list[Change] = []
    for change in changes:
        if change[0] in RELEASES:
            row.append(change)
            continue
        groups += [row, [change]]
        row = []
    groups.append(row)
    return [tuple(sorted(group)) for group in groups if group]


def change_of(entry: Entry) -> Change:
    """What an entry says of a segment."""
    return entry.action, entry.address, entry.size, entry.stream


def changes_text(changes: Sequence[Change]) -> str:
    """For an error message."""
    texts = [f"{action} of {size} bytes at {at:#x}" for action, at, size, _ in changes]
    return "; ".join(texts) or "nothing"


def entry_text(entry: Entry) -> str:
    """For an error message."""
    return f"{entry.action} of {entry.size} bytes at {entry.address:#x}"
