"""One figure of a report: what it says in words, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bsprof.report.panel import Panel


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """One figure.

    Attributes:
        key: Identifier in the page.
        title: Heading of a few words.
        caption: What to see and how to read it, plain sentences.
        alternative: What the picture shows, for those who do not see it.
        draw: Draws it on a panel.
        legend_rows: Lines of text that it takes beside its axes, a legend's or names; None is
            one, or one for each profile.
    """

    key: str
    title: str
    caption: str
    alternative: str
    draw: Callable[[Panel], None]
    legend_rows: int | None = None
