"""Plans and quantities as phrases of a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bsprof.records import PieceRun, PointStatus, Profile, Quantity
from bsprof.units import format_count, format_share

_SOFTWARE_NAMES = {"torch": "torch", "cudnn": "cuDNN", "cuda": "CUDA"}
_NO_DIFFERENCE = 0.0005  # shown with one digit of a percent, this is 0.0 %

OUTCOMES = {
    PointStatus.OK: "fits only after the allocator flushed its cache, which no run should rely on",
    PointStatus.OOM: "ran out of memory",
    PointStatus.KILLED: "was killed for its memory",
    PointStatus.TIMEOUT: "did not end within its time limit",
    PointStatus.CRASHED: "crashed",
    PointStatus.FAILED: "failed",
    PointStatus.NOT_MEMORY_LIMIT: "hit a limit that is not memory",
    PointStatus.SKIPPED: "was not tried",
}

PREDICTED_OUTCOMES = OUTCOMES | {
    PointStatus.OOM: "is predicted to run out of memory",
    PointStatus.FAILED: "could not be traced",
    PointStatus.SKIPPED: "was not predicted",
}


def plural(count: int, noun: str) -> str:
    """`1 rank`, `8 ranks`, `1,024 samples`."""
    ending = "" if count == 1 else "es" if noun.endswith(("s", "h")) else "s"
    return f"{count:,} {noun}{ending}"


def with_interval(quantity: Quantity, show: Callable[[float], str]) -> str:
    """`5.12 s (5.05 s to 5.20 s)`; the value alone where the interval does not show."""
    value, low, high = show(quantity.value), show(quantity.low), show(quantity.high)
    return value if low == high else f"{value} ({low} to {high})"


def three_digits(value: float) -> str:
    """A ratio or a price for people, three significant digits: `1.80`, `0.525`, `5,000`."""
    return f"{value:#.3g}".rstrip(".") if 0 < value < 999.5 else format_count(value)


def slower_or_faster(excess: Quantity) -> str:
    """`1.2 % slower (0.3 % to 2.1 %)`; the interval counts in the direction of the word."""
    if abs(excess.value) < _NO_DIFFERENCE:
        within = max(-excess.low, excess.high)
        return "as fast" + (f" (to within {format_share(within)})" if within else "")
    word, sign = ("slower", 1) if excess.value > 0 else ("faster", -1)
    ends = sorted((sign * excess.low, sign * excess.high))
    value, low, high = (format_share(v) for v in (abs(excess.value), *ends))
    return f"{value} {word}" + ("" if low == high else f" ({low} to {high})")


def pieces(runs: Sequence[PieceRun], step: str) -> str:
    """`32 micro-steps of 64`, `31 micro-steps of 64 and 1 of 16`."""
    first = f"{plural(runs[0].count, step)} of {runs[0].size:,}"
    return " and ".join([first, *(f"{run.count:,} of {run.size:,}" for run in runs[1:])])


def listing(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def rules_text(profile: Profile) -> str:
    """Whose rules a prediction follows: `torch 2.13, cuDNN 9 and CUDA 12.8`; empty if unknown."""
    software = {} if profile.prediction is None else profile.prediction.software
    known = [
        f"{name} {software[key]}" for key, name in _SOFTWARE_NAMES.items() if software.get(key)
    ]
    others = [f"{k} {v}" for k, v in sorted(software.items()) if k not in _SOFTWARE_NAMES and v]
    return listing([*known, *others]) if known or others else ""
