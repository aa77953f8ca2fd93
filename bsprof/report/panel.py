"""One set of axes with the report's manners: size axis, units, marks for knee and choice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bsprof.records import Quantity
from bsprof.report.theme import Colours
from bsprof.report.words import size_range_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDE = 6.0  # a largest size over this many times the smallest asks for a logarithmic axis
_BAND_ALPHA = 0.18
_MARKER = 6.5
_FLAG_SIZE = 9.0
_CHARACTER_POINTS = 5.3  # mean width of a letter at 9 points in the figures' font


@dataclass(slots=True)
class Panel:
    """Axes being drawn on.

    Attributes:
        axes: matplotlib's axes.
        colours: Colour by role.
        tips: Text shown when the pointer rests on the mark of that id.
        flags: Vertical marks with a label above the axes: size, text, colour role.
    """

    axes: Axes
    colours: Colours
    tips: dict[str, str] = field(default_factory=dict)
    flags: list[tuple[float, str, str]] = field(default_factory=list)

    def curve(
        self,
        sizes: Sequence[int],
        values: Sequence[float],
        role: str,
        *,
        dash: object = "-",
        band: tuple[Sequence[float], Sequence[float]] | None = None,
        label: str | None = None,
    ) -> None:
        """A fitted curve, with its interval as a band."""
        colour = self.colours[role]
        if band is not None:
            self.axes.fill_between(
                sizes, band[0], band[1], color=colour, alpha=_BAND_ALPHA, linewidth=0
            )
        self.axes.plot(sizes, values, color=colour, linestyle=dash, label=label)

    def point(
        self,
        size: float,
        quantity: Quantity,
        role: str,
        tip: str,
        *,
        marker: str = "o",
        hollow: bool = False,
        chosen: bool = False,
        key: float | None = None,
    ) -> None:
        """One value with its interval; the chosen one is ringed.

        Args:
            size: Where it lies across.
            quantity: Where it lies up, with its interval.
            role: Of its colour.
            tip: Shown when the pointer rests on it.
            marker, hollow, chosen: How it stands out.
            key: What its id ends in; None is `size`.
        """
        colour, surface = self.colours[role], self.colours["surface"]
        self.axes.plot([size, size], [quantity.low, quantity.high], color=colour, linewidth=1.4)
        name = f"point-{len(self.tips)}-{size if key is None else key}"
        self.tips[name] = tip
        self.axes.plot(
            [size],
            [quantity.value],
            marker=marker,
            linestyle="none",
            markersize=_MARKER,
            markerfacecolor=surface if hollow else colour,
            markeredgecolor=colour if hollow else surface,
            markeredgewidth=1.4,
            gid=name,
            zorder=4,
        )
        if chosen:
            self.ring(size, quantity.value)

    def ring(self, size: float, value: float) -> None:
        """A ring around the recommended point."""
        self.axes.plot(
            [size],
            [value],
            marker="o",
            linestyle="none",
            markersize=2.1 * _MARKER,
            markerfacecolor="none",
            markeredgecolor=self.colours["ink"],
            markeredgewidth=1.6,
            zorder=5,
        )

    def cross(self, size: int, tip: str, role: str, row: int = 0) -> None:
        """A size without numbers: a cross just above the size axis, each profile in its row."""
        key = f"point-{len(self.tips)}-{size}"
        self.tips[key] = tip
        self.axes.plot(
            [size],
            [0.03 + 0.05 * row],
            transform=self.axes.get_xaxis_transform(),
            marker="X",
            linestyle="none",
            markersize=_MARKER + 1,
            markerfacecolor=self.colours[role],
            markeredgecolor=self.colours["surface"],
            gid=key,
            zorder=4,
        )

    def flag(self, size: float, text: str, role: str = "soft") -> None:
        """A vertical line with a label above the axes; drawn by `finish`."""
        self.flags.append((size, text, role))

    def span(self, quantity: Quantity, role: str) -> None:
        """A range of sizes as a light vertical band."""
        self.axes.axvspan(
            quantity.low, quantity.high, color=self.colours[role], alpha=_BAND_ALPHA, linewidth=0
        )

    def names_above(self, names: Sequence[tuple[float, str]], *, size: float) -> None:
        """Names of parts of the axis, centred at a place from 0 to 1, in rows where they touch."""
        taken: list[list[tuple[float, float]]] = []
        for place, text in names:
            half = 0.5 * self._width(text, size)
            place = min(max(place, half), 1.02 - half)
            row = _free_row(taken, (place - half, place + half))
            self.axes.annotate(
                text,
                (place, 1.0),
                xycoords="axes fraction",
                xytext=(0, 4 + 11 * row),
                textcoords="offset points",
                ha="center",
                va="bottom",
                color=self.colours["soft"],
                fontsize=size,
            )

    def _width(self, text: str, size: float = _FLAG_SIZE) -> float:
        """Roughly how wide a text is, over the width of the axes."""
        axes_points = 72.0 * self.axes.get_window_extent().width / self.axes.figure.dpi
        return _CHARACTER_POINTS * size / _FLAG_SIZE / axes_points * len(text)

    def finish(self) -> None:
        """Draw the flags; labels that would touch are put on lines of their own."""
        taken: list[list[tuple[float, float]]] = []
        placed = sorted(self.flags)
        for order, (size, text, role) in enumerate(placed):
            self.axes.axvline(
                size, color=self.colours[role], linewidth=1.2, linestyle=(0, (4, 3)), zorder=1
            )
            place = self._across(size)
            width = self._width(text)
            # The leftmost label stands left of its line, so that two neighbours share a row.
            leftwards = order == 0 and len(placed) > 1 and place - width > -0.08
            leftwards = leftwards or place + width > 1.03
            extent = (place - width, place) if leftwards else (place, place + width)
            row = _free_row(taken, extent)
            self.axes.annotate(
                text,
                (size, 1.0),
                xycoords=self.axes.get_xaxis_transform(),
                xytext=(2 if leftwards else -2, 4 + 12 * row),
                textcoords="offset points",
                ha="right" if leftwards else "left",
                va="bottom",
                color=self.colours["ink"],
                fontsize=_FLAG_SIZE,
            )

    def _across(self, size: float) -> float:
        """Where a size lies on the axis, 0 at its left end and 1 at its right."""
        low, high = self.axes.get_xlim()
        if self.axes.get_xscale() == "log":
            return math.log(size / low) / math.log(high / low)
        return (size - low) / (high - low)


def _free_row(taken: list[list[tuple[float, float]]], extent: tuple[float, float]) -> int:
    """The first row of labels with room for this one; takes it."""
    for row, others in enumerate(taken):
        if all(extent[1] < low or high < extent[0] for low, high in others):
            others.append(extent)
            return row
    taken.append([extent])
    return len(taken) - 1


def knee_text(knee: Quantity, share: float) -> str:
    """The label of the knee: `95 % knee at 6 (5 to 8)`."""
    return f"{share:.0%} knee at {size_range_text(knee)}".replace("%", " %", 1)


def size_axis(panel: Panel, sizes: Sequence[float], *, logarithmic: bool | None = None) -> None:
    """The micro-batch axis, with room at both ends.

    Args:
        panel: Where.
        sizes: All sizes that are shown.
        logarithmic: None decides by how far the sizes reach.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    low, high = min(sizes), max(sizes)
    axes = panel.axes
    axes.set_xlabel("micro-batch size")
    wide = high / low > _WIDE if logarithmic is None else logarithmic
    if wide or low == high:
        room = (high / low) ** 0.06 if high > low else 2.0
        axes.set_xscale("log", base=2)
        axes.set_xlim(low / room, high * room)
        first, last = math.ceil(math.log2(low / room)), math.floor(math.log2(high * room))
        stride = max(1, (last - first) // 9 + 1)
        axes.xaxis.set_major_locator(FixedLocator([2.0**e for e in range(first, last + 1, stride)]))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        room = 0.05 * (high - low)
        axes.set_xlim(max(0.0, low - room), high + room)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, steps=[1, 2, 4, 5, 8, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.grid(visible=False)


def byte_unit(largest: float) -> tuple[float, str]:
    """Bytes per unit and the unit's name, for an axis that reaches up to that many bytes."""
    for power, name in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if largest >= 1.5 * 1024**power:
            return float(1024**power), name
    return 1.0, "B"


def second_unit(largest: float) -> tuple[float, str]:
    """Seconds per unit and the unit's name, for an axis that reaches up to that many seconds."""
    for seconds, name in ((1.0, "s"), (1e-3, "ms")):
        if largest >= 1.5 * seconds:
            return seconds, name
    return 1e-6, "us"


def legend_below(panel: Panel, columns: int = 3) -> None:
    """The legend under the axes, out of the way of the marks; nothing when nothing is labelled."""
    handles, _ = panel.axes.get_legend_handles_labels()
    if handles:
        panel.axes.legend(
            loc="upper left", bbox_to_anchor=(0.0, -0.2), ncols=min(columns, len(handles))
        )
