"""Tables of a PDF: columns as wide as their text allows, wrapped cells, headers on every page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bsprof.report.pdf_pages import LEFT, WIDTH, Pages, line_height
from bsprof.report.pdf_text import kept_together, shown, widest_word, width_of, wrapped
from bsprof.report.tables import Emphasis, Row, Table, reasons_across

_SIZE, _SMALLEST = 7.8, 6.0
_GAP = 0.1  # between two columns
_TOGETHER = 3  # rows that stay with the header
_PADDING = 0.035  # above and below the text of a row
_SPREAD = 0.35  # most that a column gets on top of its text, so that few columns stay together
_READABLE = 1.3  # sentences get no narrower while numbers can be wrapped
_WORD = 1.1  # a longer word does not widen its column: it is broken
_ROLES = {Emphasis.FAILED: "bad", Emphasis.EDGE: "edge"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """Where the columns are, and how large their text is."""

    size: float
    widths: tuple[float, ...]
    numeric: tuple[bool, ...]

    def left(self, column: int) -> float:
        """Inches from the page's left edge to a column's."""
        return LEFT + sum(self.widths[:column]) + _GAP * column

    def span(self, first: int) -> float:
        """Width of a cell that reaches from a column to the last one."""
        return LEFT + WIDTH - self.left(first)


def draw_table(pages: Pages, table: Table, heading: str = "", *, heading_size: float = 11) -> None:
    """The table at the current place; the header is repeated where it goes over a page.

    Args:
        pages: Where to.
        table: What to draw.
        heading: Stays with the first rows; empty for none.
        heading_size: Its size in points.
    """
    table, spanning = reasons_across(table)
    for part in _parts(table):
        grid = _grid(part) or _squeezed(part)
        header = Row(cells=tuple(column.title for column in part.columns))
        rows = [(row, _lines(grid, row, spanning.get(row, ""))) for row in part.rows]
        keep = _header_height(grid, header)
        keep += sum(_height(grid, lines) for _, lines in rows[:_TOGETHER])
        if heading:
            pages.heading(heading, size=heading_size, keep=keep)
        else:
            pages.need(keep)
        _draw(pages, grid, header, rows)
        heading, spanning = "", {}  # said once


def _draw(
    pages: Pages, grid: _Grid, header: Row, rows: Sequence[tuple[Row, list[list[str]]]]
) -> None:
    _header(pages, grid, header)
    for row, lines in rows:
        height = _height(grid, lines)
        if pages.need(height):
            _header(pages, grid, header)
        _row(pages, grid, row, lines, height)
    pages.y += 0.1


def _height(grid: _Grid, lines: Sequence[Sequence[str]]) -> float:
    return max(map(len, lines)) * line_height(grid.size) + 2 * _PADDING


def pretty(text: str) -> str:
    """A cell's text with `+-` as one sign, kept with its unit."""
    return kept_together(text).replace("+-", "\N{PLUS-MINUS SIGN}")


def _grid(table: Table) -> _Grid | None:
    """Where the columns go; None when they are too many for one line of readable size."""
    numeric = tuple(column.numeric for column in table.columns)
    available = WIDTH - _GAP * (len(table.columns) - 1)
    size = _SIZE
    least, natural = _widths(table, size)
    while sum(least) > available:
        size -= 0.2
        if size < _SMALLEST:
            return None
        least, natural = _widths(table, size)
    return _Grid(
        size=size, widths=tuple(_shared(least, natural, numeric, available)), numeric=numeric
    )


def _parts(table: Table) -> list[Table]:
    """The table in parts that fit beside the first column, which all of them repeat."""
    parts, rest = [], table
    while len(rest.columns) > 1:
        count = len(rest.columns)
        while count > 2 and _grid(_columns(rest, range(count))) is None:
            count -= 1
        parts.append(_columns(rest, range(count)))
        rest = _columns(rest, (0, *range(count, len(rest.columns))))
    return parts or [table]


def _columns(table: Table, kept: Sequence[int]) -> Table:
    """Those columns of the table, without the rows that have nothing in them but the first."""
    rows = [
        replace(row, cells=tuple(row.cells[i] for i in kept if i < len(row.cells)))
        for row in table.rows
    ]
    return replace(
        table,
        columns=tuple(table.columns[i] for i in kept),
        rows=tuple(row for row in rows if any(row.cells[1:])),
    )


def _shared(
    least: Sequence[float], natural: Sequence[float], numeric: Sequence[bool], available: float
) -> list[float]:
    """Widths that fit: sentences give way down to a readable width, then all numbers wrap."""
    readable = [
        high if number else max(low, min(high, _READABLE))
        for low, high, number in zip(least, natural, numeric, strict=True)
    ]
    if sum(readable) > available:
        tight = [
            low if number else width
            for low, width, number in zip(least, readable, numeric, strict=True)
        ]
        # A number that wraps costs its row a line, and then the others may wrap as well.
        readable = tight if sum(tight) <= available else _between(least, tight, available)
    wished = [
        max(width, high) if not number else width
        for width, high, number in zip(readable, natural, numeric, strict=True)
    ]
    widths = wished if sum(wished) <= available else _between(readable, wished, available)
    spare = (available - sum(widths)) / len(widths)
    return [width + min(_SPREAD, spare) for width in widths]


def _between(low: Sequence[float], high: Sequence[float], total: float) -> list[float]:
    """Widths that add up to a total, as far from the low ones to the high ones as it allows."""
    share = (total - sum(low)) / max(sum(high) - sum(low), 1e-9)
    return [a + share * (b - a) for a, b in zip(low, high, strict=True)]


def _squeezed(table: Table) -> _Grid:
    """Columns that do not fit, each as narrow as its share; words are broken."""
    least, _ = _widths(table, _SMALLEST)
    available = WIDTH - _GAP * (len(least) - 1)
    return _Grid(
        size=_SMALLEST,
        widths=tuple(width * available / sum(least) for width in least),
        numeric=tuple(column.numeric for column in table.columns),
    )


def _widths(table: Table, size: float) -> tuple[list[float], list[float]]:
    """Of each column: the least width that breaks no word, and the one that wraps nothing."""
    least, natural = [], []
    for index, column in enumerate(table.columns):
        narrow, wide = widest_word(column.title, size, bold=True), 0.0
        for row in table.rows:
            if index >= len(row.cells):
                continue
            text = pretty(row.cells[index])
            bold = row.emphasis is Emphasis.CHOSEN
            narrow = max(narrow, widest_word(text, size, bold=bold))
            wide = max(wide, width_of(shown(text), size, bold=bold))
        narrow = min(narrow, _WORD)
        least.append(narrow + 0.01)
        natural.append(max(narrow, wide) + 0.01)
    return least, natural


def _lines(grid: _Grid, row: Row, across: str) -> list[list[str]]:
    """The lines of every cell; a reason that goes across is the last one."""
    bold = row.emphasis is Emphasis.CHOSEN
    lines = [
        wrapped(pretty(text), width, grid.size, bold=bold)
        for text, width in zip(row.cells, grid.widths, strict=False)
    ]
    if across:
        lines.append(wrapped(kept_together(across), grid.span(len(row.cells)), grid.size))
    return lines


def _row(pages: Pages, grid: _Grid, row: Row, lines: list[list[str]], height: float) -> None:
    if row.emphasis is Emphasis.CHOSEN:
        pages.box(LEFT - 0.06, pages.y, WIDTH + 0.12, height, role="accent", alpha=0.1)
    role = _ROLES.get(row.emphasis, "ink")
    for column, cell in enumerate(lines):
        numeric = column < len(row.cells) and grid.numeric[column]
        _cell(pages, grid, column, cell, numeric=numeric, role=role, row=row)
    pages.y += height
    pages.rule(pages.y)


def _cell(
    pages: Pages,
    grid: _Grid,
    column: int,
    lines: Sequence[str],
    *,
    numeric: bool,
    role: str,
    row: Row,
) -> None:
    left = grid.left(column)
    for number, line in enumerate(lines):
        pages.line(
            line,
            left + grid.widths[column] if numeric else left,
            pages.y + _PADDING + number * line_height(grid.size),
            size=grid.size,
            role=role,
            bold=row.emphasis is Emphasis.CHOSEN,
            align="right" if numeric else "left",
        )


def _header_lines(grid: _Grid, header: Row) -> list[list[str]]:
    return [
        wrapped(title, width, grid.size, bold=True)
        for title, width in zip(header.cells, grid.widths, strict=True)
    ]


def _header_height(grid: _Grid, header: Row) -> float:
    return _height(grid, _header_lines(grid, header))


def _header(pages: Pages, grid: _Grid, header: Row) -> None:
    height = _header_height(grid, header)
    for column, lines in enumerate(_header_lines(grid, header)):
        top = pages.y + height - _PADDING - len(lines) * line_height(grid.size)
        left, numeric = grid.left(column), grid.numeric[column]
        for number, line in enumerate(lines):
            pages.line(
                line,
                left + grid.widths[column] if numeric else left,
                top + number * line_height(grid.size),
                size=grid.size,
                role="muted",
                bold=True,
                align="right" if numeric else "left",
            )
    pages.y += height
    pages.rule(pages.y, role="muted", points=1.0)


def draw_pairs(pages: Pages, pairs: Sequence[tuple[str, str]], *, ragged: bool = False) -> None:
    """Names and texts in two columns that are read downwards.

    Args:
        pages: Where to.
        pairs: Name and text.
        ragged: Whether texts, being sentences, all begin in one line; else they end in one.
    """
    gap = 0.35
    width = (WIDTH - gap) / 2
    room = width - 0.12
    height = -(-len(pairs) // 2)
    widest = max((width_of(shown(name), _SIZE) for name, _ in pairs), default=0.0)
    for number in range(height):
        cells = []
        for name, text in pairs[number::height]:
            own = widest if ragged else width_of(shown(name), _SIZE)
            for_name = min(own + 0.02, 0.45 * room)
            names = wrapped(name, for_name, _SIZE)
            cells.append((for_name, names, wrapped(kept_together(text), room - for_name, _SIZE)))
        tall = max(max(len(names), len(texts)) for _, names, texts in cells)
        inches = tall * line_height(_SIZE) + 2 * _PADDING
        pages.need(inches)
        for place, (for_name, names, texts) in enumerate(cells):
            left = LEFT + place * (width + gap)
            _column(pages, names, left, role="muted")
            if ragged:
                _column(pages, texts, left + for_name + 0.12)
            else:
                _column(pages, texts, left + width, align="right")
            pages.rule(pages.y + inches, x=left, width=width)
        pages.y += inches
    pages.y += 0.1


def _column(
    pages: Pages, lines: Sequence[str], x: float, *, role: str = "ink", align: str = "left"
) -> None:
    for order, line in enumerate(lines):
        y = pages.y + _PADDING + order * line_height(_SIZE)
        pages.line(line, x, y, size=_SIZE, role=role, align=align)
