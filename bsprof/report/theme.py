"""Colours and matplotlib settings of the figures.

A figure inside a page is drawn in token colours, which `svg` then turns into CSS variables, so one
picture follows the reader's light or dark scheme. A PNG is drawn in the light colours.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bsprof.records import Category, Phase

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Colours = Mapping[str, str]
"""Colour by role, `#rrggbb`."""

LIGHT: Colours = {
    "page": "#f6f6f3",
    "surface": "#fdfdfc",
    "ink": "#11110f",
    "soft": "#52514e",
    "muted": "#75736d",
    "grid": "#e3e2da",
    "accent": "#1f63b5",
    "good": "#0b7a0b",
    "bad": "#c0322f",
    "edge": "#9a5b00",
    "series1": "#2a78d6",
    "series2": "#eb6834",
    "series3": "#1baf7a",
    "series4": "#eda100",
    "series5": "#e87ba4",
    "series6": "#4a3aa7",
    "cached": "#cfccc0",
    "outside": "#8f8c82",
}
DARK: Colours = {
    "page": "#0f0f0e",
    "surface": "#1a1a19",
    "ink": "#f7f6f1",
    "soft": "#c3c2b7",
    "muted": "#98968e",
    "grid": "#30302d",
    "accent": "#7db4f5",
    "good": "#4cc24c",
    "bad": "#f07f7c",
    "edge": "#e6ac4d",
    "series1": "#3987e5",
    "series2": "#d95926",
    "series3": "#199e70",
    "series4": "#c98500",
    "series5": "#d55181",
    "series6": "#9085e9",
    "cached": "#4d4b45",
    "outside": "#7a776d",
}
TOKENS: Colours = {role: f"#0b5f{index:02x}" for index, role in enumerate(LIGHT)}

SERIES = tuple(role for role in LIGHT if role.startswith("series"))
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
"""When there are more profiles than colours, the next round of the colours has another dash."""
MARKERS = ("o", "s", "D", "^", "v", "P")

PHASE_ROLES: Mapping[Phase, str] = {
    Phase.FORWARD_BACKWARD: "series1",
    Phase.ACCUMULATION: "series3",
    Phase.OPTIMIZER_STEP: "series2",
    Phase.FORWARD: "series1",
}
CATEGORY_ROLES: Mapping[Category, str] = {
    Category.WEIGHTS: "series1",
    Category.OPTIMIZER_STATE: "series2",
    Category.GRADIENTS: "series3",
    Category.ACTIVATIONS: "series4",
    Category.TEMPORARIES: "series5",
    Category.LIBRARIES: "series6",
}
"""In the order they are stacked: what stays first, what comes and goes last."""

_SETTINGS = {
    "axes.axisbelow": True,
    "axes.edgecolor": "grid",
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": "soft",
    "axes.labelsize": 9.5,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same bytes everywhere
    "font.size": 9.5,
    "grid.color": "grid",
    "grid.linewidth": 0.8,
    "legend.borderaxespad": 0.0,
    "legend.fontsize": 9.0,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.labelcolor": "soft",
    "lines.linewidth": 2.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "bsprof",
    "text.color": "ink",
    "text.parse_math": False,  # a dollar sign in a model's name is a dollar sign
    "xtick.color": "grid",
    "xtick.labelcolor": "soft",
    "xtick.labelsize": 9.0,
    "ytick.color": "grid",
    "ytick.labelcolor": "soft",
    "ytick.labelsize": 9.0,
    "ytick.left": False,
}


@contextmanager
def figure_settings(colours: Colours) -> Iterator[None]:
    """matplotlib's own defaults plus the report's, whatever the user's matplotlibrc says."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: dict[Any, Any] = {  # matplotlib's stubs want every key as a literal
            key: colours.get(value, value) if isinstance(value, str) else value
            for key, value in _SETTINGS.items()
        }
        matplotlib.rcParams.update(settings)
        yield


def new_figure(width_in: float, height_in: float) -> Figure:
    """An empty figure without pyplot and its global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in))


@functools.cache
def _drawable() -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())


def drawable_text(text: str, longest: int = 48) -> str:
    """Text with what the figure's font lacks replaced by `?`, cut in the middle when too long.

    The pages around the figures show the same text in full.
    """
    known = "".join(c if ord(c) in _drawable() and c.isprintable() else "?" for c in text)
    if len(known) <= longest:
        return known
    half = (longest - 3) // 2
    return f"{known[:half]}...{known[-half:]}"


def series_style(index: int) -> tuple[str, object, str]:
    """Colour role, dash and marker of the profile at that index."""
    round_number, place = divmod(index, len(SERIES))
    return SERIES[place], DASHES[round_number % len(DASHES)], MARKERS[place]
