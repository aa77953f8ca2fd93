"""When a run drifts: rules over the numbers of past updates. Pure, no torch.

Heuristics throughout, chosen so that a steady run of a thousand updates stays silent: a value is
strange when it is far outside the middle of the window before it, on a scale that the window's own
spread sets, for several updates in a row.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass

from bsprof.records import Note

FEWEST = 16
"""Updates before anything but a value that is not finite is called strange."""
IN_A_ROW = 3
"""Strange updates that make a drift: a single one is an outlier of the data."""
SPREADS = 6.0
"""Spreads (median absolute deviations, scaled to a normal's sigma) from the median."""
FACTOR = 3.0
"""Least ratio to the median that is strange, for norms: gradients differ between batches."""
NOISE_FACTOR = 4.0
"""Ratio between noise scales a window apart that is told: they are known to about a factor 2."""
_SIGMA_OVER_MAD = 1.4826


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What was seen of one update.

    Attributes:
        step: Number of the update, from 1.
        loss: Mean over the whole update, all ranks.
        gradient_norm: Before clipping; None where it was not computed.
        gradient_variance: tr(S), see `NoiseParts`, running mean; None when unknown.
        noise_scale: In samples, from running means; None when not enough is known.
        stepped: Whether the optimizer stepped; a gradient scaler may skip it.
    """

    step: int
    loss: float
    gradient_norm: float | None = None
    gradient_variance: float | None = None
    noise_scale: float | None = None
    stepped: bool = True


class Drift:
    """Watches one run.

    Args:
        window: Updates that say what is usual.

    Attributes:
        last_good_step: The last update before the numbers became strange; the newest when they
            are not.
    """

    def __init__(self, window: int) -> None:
        self._norms = _Band("gradient norm", window, least_ratio=FACTOR)
        self._losses = _Band("loss", window, least_ratio=None)
        self._noises: deque[tuple[int, float]] = deque(maxlen=window)
        self._noises_seen = 0
        self._finite = True
        self.last_good_step = 0

    def see(self, update: Observed) -> list[Note]:
        """Notes on this update; each drift is told once, when it is sure."""
        notes = []
        values = [update.loss, update.gradient_norm or 0.0]
        finite = all(map(math.isfinite, values))
        # A gradient scaler skips updates that are not finite: that is its work.
        if not finite and update.stepped:
            if self._finite:
                notes.append(
                    Note(
                        code="not-finite",
                        message=f"update {update.step}: loss {update.loss:g}, gradient norm "
                        f"{_shown(update.gradient_norm)}",
                        hint="the weights have taken this step: go back to before it",
                    )
                )
            self._finite = False
            return notes
        if not finite:
            return notes
        self._finite = True
        for band, value in ((self._norms, update.gradient_norm), (self._losses, update.loss)):
            if value is not None and (told := band.see(update.step, value)):
                notes.append(told)
        notes += self._noise(update)
        if not self._norms.strange and not self._losses.strange:
            self.last_good_step = update.step
        return notes

    def _noise(self, update: Observed) -> list[Note]:
        if update.noise_scale is None:
            return []
        self._noises_seen += 1
        if self._noises_seen <= (self._noises.maxlen or 0):
            return []  # a running mean over few updates moves by its own error
        self._noises.append((update.step, update.noise_scale))
        first_step, first = self._noises[0]
        ratio = update.noise_scale / first
        if len(self._noises) < FEWEST or 1 / NOISE_FACTOR < ratio < NOISE_FACTOR:
            return []
        self._noises.clear()
        return [
            Note(
                code="noise-scale-drift",
                message=f"the gradient noise scale went from {first:.3g} samples at update "
                f"{first_step} to {update.noise_scale:.3g} at update {update.step}",
                hint="a noise scale that grows is usual; one that falls may mean that the "
                "gradient is dominated by few samples",
            )
        ]


class _Band:
    """Middle and spread of a quantity over the window; strange values do not enter it."""

    def __init__(self, name: str, window: int, *, least_ratio: float | None) -> None:
        self._name = name
        self._least_ratio = least_ratio
        self._usual: deque[float] = deque(maxlen=window)
        self._row: list[float] = []
        self._told = False

    @property
    def strange(self) -> bool:
        """Whether the newest value was."""
        return bool(self._row)

    def see(self, step: int, value: float) -> Note | None:
        if len(self._usual) < FEWEST or not self._is_strange(value):
            self._usual.append(value)
            self._row.clear()
            self._told = False
            return None
        self._row.append(value)
        if len(self._row) < IN_A_ROW or self._told:
            if len(self._row) >= self._usual.maxlen:  # type: ignore[operator]
                self._settle()
            return None
        self._told = True
        middle = statistics.median(self._usual)
        return Note(
            code=self._name.replace(" ", "-") + "-drift",
            message=f"the {self._name} left its usual range at update {step - IN_A_ROW + 1}: "
            f"{value:.4g}, and {middle:.4g} before",
            hint="look at the data of these updates, the learning rate and the loss scale",
        )

    def _is_strange(self, value: float) -> bool:
        middle = statistics.median(self._usual)
        spread = _SIGMA_OVER_MAD * statistics.median(abs(x - middle) for x in self._usual)
        # A window of equal values has no spread of its own; a per mille is no drift.
        limit = middle + SPREADS * max(spread, 1e-3 * abs(middle))
        if self._least_ratio is not None:
            limit = max(limit, self._least_ratio * middle)
        return value > limit

    def _settle(self) -> None:
        """What stays strange for a whole window has become usual."""
        self._usual.clear()
        self._usual.extend(self._row)
        self._row.clear()
        self._told = False


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"
