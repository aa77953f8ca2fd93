"""Widths of text in the PDF's font, and lines that fit; lengths in inches, sizes in points."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from bsprof.report.theme import drawable_text
from bsprof.report.words import unbroken

POINTS = 72.0  # per inch
_BRACKETS = re.compile(r"\([^()]{1,24}\)")
_UNBROKEN = "\N{NO-BREAK SPACE}"
_LONGEST = 100_000  # characters: no text is cut, lines are wrapped
# Where a word that is longer than a line may be broken: after these, else anywhere.
_PIECES = re.compile(r"[^/\\_.,:;=\-]*[/\\_.,:;=\-]+|[^/\\_.,:;=\-]+")


def shown(text: str) -> str:
    """Text as the font can show it: what it lacks is `?`, and line breaks are spaces."""
    parts = text.replace("\n", " ").split(_UNBROKEN)
    return _UNBROKEN.join(drawable_text(part, _LONGEST) for part in parts)


def kept_together(text: str) -> str:
    """Text whose numbers stay with their units, and short remarks in brackets on one line."""
    return _BRACKETS.sub(lambda found: found[0].replace(" ", _UNBROKEN), unbroken(text))


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """Inches that a line of text takes."""
    return sum(_advance(character, bold) for character in text) * size / POINTS


@functools.cache
def _advance(character: str, bold: bool) -> float:
    """Width of a character as a share of the font's size."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    size = 100.0
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal", size=size)
    # Between two letters, because a space at the end has no width of its own.
    pair, inner = (
        text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]
        for text in ("HH", f"H{character}H")
    )
    return float(inner - pair) / size


def wrapped(text: str, width: float, size: float, *, bold: bool = False) -> list[str]:
    """Lines of at most that width; a word that is wider is broken. At least one line."""
    lines, line = [], ""
    for word in shown(text).split(" "):
        longer = f"{line} {word}" if line else word
        if width_of(longer, size, bold=bold) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        *full, line = _broken(word, width, size, bold=bold)
        lines += full
    return [*lines, line]


def _broken(word: str, width: float, size: float, *, bold: bool) -> Iterator[str]:
    """A word in parts of at most that width."""
    part = ""
    for piece in _PIECES.findall(word) or [word]:
        for bit in _short_enough(piece, width, size, bold=bold):
            if part and width_of(part + bit, size, bold=bold) > width:
                yield part
                part = ""
            part += bit
    yield part


def _short_enough(piece: str, width: float, size: float, *, bold: bool) -> Iterator[str]:
    """The piece, letter by letter where it is wider than a line of its own."""
    if width_of(piece, size, bold=bold) <= width:
        yield piece
    else:
        yield from piece


def widest_word(text: str, size: float, *, bold: bool = False) -> float:
    """Inches of the widest part that should not be broken."""
    return max(width_of(word, size, bold=bold) for word in shown(text).split(" "))
