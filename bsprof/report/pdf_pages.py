"""Pages of a PDF, filled from top to bottom: text lines, rules, boxes, figures, footers.

Positions are inches, x from the left edge and y from the top one.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from bsprof.report.pdf_text import POINTS, wrapped
from bsprof.report.theme import Colours, drawable_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGE_WIDTH, PAGE_HEIGHT = 8.27, 11.69  # A4
LEFT, TOP = 0.62, 0.6
WIDTH = PAGE_WIDTH - 2 * LEFT
BOTTOM = PAGE_HEIGHT - 0.8  # what is below belongs to the footer

_LEADING = 1.38  # distance of base lines over the size of the text
_FOOTER = 90  # characters
_ASCENT = 0.78  # height of capital letters and a little more over the size of the text
_LEGEND = 0.45  # inches from the axes down to their legend
_FITTING_ROUNDS = 4  # legends hang on the axes' height, so that one correction is not enough


def line_height(size: float) -> float:
    """Inches from one line of text to the next."""
    return size * _LEADING / POINTS


class Pages:
    """A document being written: where the next thing goes, and the pages so far.

    Attributes:
        y: Inches from the top of the page to where the next thing goes.
        colours: Colour by role.
    """

    def __init__(self, colours: Colours) -> None:
        self.colours = colours
        self.y = TOP
        self._figures: list[Figure] = []
        self.new_page()

    def new_page(self) -> None:
        """Go on at the top of a fresh page."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(PAGE_WIDTH, PAGE_HEIGHT), facecolor="white")
        FigureCanvasAgg(figure)  # measures; the PDF's own canvas replaces it when written
        self._figures.append(figure)
        self.y = TOP

    @property
    def page(self) -> Figure:
        """The page being filled."""
        return self._figures[-1]

    @property
    def room(self) -> float:
        """Inches left on this page."""
        return BOTTOM - self.y

    def need(self, height: float) -> bool:
        """Go on to a fresh page unless that many inches are left on this one; whether it did."""
        if height <= self.room or self.y == TOP:
            return False
        self.new_page()
        return True

    def space(self, inches: float) -> None:
        """Leave room, but not at the top of a page."""
        if self.y > TOP:
            self.y += inches

    def line(
        self,
        text: str,
        x: float,
        y: float,
        *,
        size: float,
        role: str = "ink",
        bold: bool = False,
        align: str = "left",
    ) -> None:
        """One line of text whose upper edge is at y; it is not wrapped and moves nothing."""
        self.page.text(
            x / PAGE_WIDTH,
            1 - (y + size * _ASCENT / POINTS) / PAGE_HEIGHT,
            text.replace("\N{NO-BREAK SPACE}", " "),  # readers search for a plain space
            fontsize=size,
            fontweight="bold" if bold else "normal",
            color=self.colours[role],
            ha=align,
            va="baseline",
        )

    def paragraph(
        self,
        text: str,
        *,
        size: float = 9.5,
        role: str = "ink",
        bold: bool = False,
        indent: float = 0.0,
        bullet: str = "",
        bullet_role: str = "accent",
        after: float = 0.06,
    ) -> None:
        """Text in as many lines as it needs, over pages if need be."""
        lines = wrapped(text, WIDTH - indent, size, bold=bold)
        for number, line in enumerate(lines):
            self.need(line_height(size))
            if bullet and number == 0:
                self.line(bullet, LEFT + indent - 0.14, self.y, size=size, role=bullet_role)
            self.line(line, LEFT + indent, self.y, size=size, role=role, bold=bold)
            self.y += line_height(size)
        self.y += after

    def bullets(self, lines: Iterable[str], *, size: float = 9.5, role: str = "ink") -> None:
        """A list of sentences."""
        for text in lines:
            self.paragraph(
                text, size=size, role=role, indent=0.16, bullet="\N{BULLET}", after=0.035
            )

    def heading(self, text: str, *, size: float = 13.0, keep: float = 0.9) -> None:
        """A heading that stays with the `keep` inches after it."""
        lines = wrapped(text, WIDTH, size, bold=True)
        self.space(0.22)
        self.need(len(lines) * line_height(size) + keep)
        for line in lines:
            self.line(line, LEFT, self.y, size=size, bold=True)
            self.y += line_height(size)
        self.y += 0.06

    def rule(
        self,
        y: float,
        *,
        x: float = LEFT,
        width: float = WIDTH,
        role: str = "grid",
        points: float = 0.8,
    ) -> None:
        """A horizontal line."""
        from matplotlib.lines import Line2D

        height = 1 - y / PAGE_HEIGHT
        self.page.add_artist(
            Line2D(
                [x / PAGE_WIDTH, (x + width) / PAGE_WIDTH],
                [height, height],
                color=self.colours[role],
                linewidth=points,
                solid_capstyle="butt",
            )
        )

    def box(
        self, x: float, y: float, width: float, height: float, *, role: str, alpha: float = 1.0
    ) -> None:
        """A filled rectangle whose upper left corner is at (x, y)."""
        from matplotlib.patches import Rectangle

        self.page.add_artist(
            Rectangle(
                (x / PAGE_WIDTH, 1 - (y + height) / PAGE_HEIGHT),
                width / PAGE_WIDTH,
                height / PAGE_HEIGHT,
                facecolor=self.colours[role],
                alpha=alpha,
                linewidth=0,
                zorder=-1,
            )
        )

    def axes(self, height: float) -> Axes:
        """Axes for a figure of that many inches over the whole width; `settle` puts them right."""
        left, bottom, width = LEFT + 0.7, self.y + height - 0.8, WIDTH - 0.8
        return self.page.add_axes(
            (
                left / PAGE_WIDTH,
                1 - bottom / PAGE_HEIGHT,
                width / PAGE_WIDTH,
                (height - 1.2) / PAGE_HEIGHT,
            )
        )

    def settle(self, axes: Axes, height: float) -> None:
        """Stretch axes so that they, labels and legend fill their place exactly; then go below."""
        from matplotlib.transforms import Bbox

        dpi = self.page.dpi
        canvas: Any = self.page.canvas
        wanted = Bbox.from_extents(
            LEFT * dpi,
            (PAGE_HEIGHT - self.y - height) * dpi,
            (LEFT + WIDTH) * dpi,
            (PAGE_HEIGHT - self.y) * dpi,
        )
        for _ in range(_FITTING_ROUNDS):
            drawn = axes.get_tightbbox(canvas.get_renderer())
            assert drawn is not None, "axes are visible"
            inner = axes.get_window_extent()
            legend = axes.get_legend()
            if legend is not None:  # below the label of the axis, however flat the axes are
                legend.set_bbox_to_anchor((0.0, -_LEGEND * dpi / inner.height), axes.transAxes)
            moved = Bbox.from_extents(
                inner.x0 + wanted.x0 - drawn.x0,
                inner.y0 + wanted.y0 - drawn.y0,
                inner.x1 + wanted.x1 - drawn.x1,
                inner.y1 + wanted.y1 - drawn.y1,
            )
            axes.set_position(moved.transformed(self.page.transFigure.inverted()))
        self.y += height

    def finished(self, title: str, footer: str) -> bytes:
        """The PDF: the pages with their footers. The same pages give the same bytes."""
        from matplotlib.backends.backend_pdf import PdfPages

        buffer = io.BytesIO()
        about = {"Title": title, "Creator": "bsprof", "Producer": None, "CreationDate": None}
        with PdfPages(buffer, metadata=about) as file:
            for number, figure in enumerate(self._figures, start=1):
                self._footer(figure, footer, f"{number} / {len(self._figures)}")
                file.savefig(figure, facecolor="white")
        return buffer.getvalue()

    def _footer(self, figure: Figure, text: str, number: str) -> None:
        size, y = 7.5, 1 - (PAGE_HEIGHT - 0.42) / PAGE_HEIGHT
        style: dict[str, Any] = {"fontsize": size, "color": self.colours["muted"]}
        figure.text(LEFT / PAGE_WIDTH, y, drawable_text(text, _FOOTER), **style)
        figure.text((LEFT + WIDTH) / PAGE_WIDTH, y, number, ha="right", **style)
