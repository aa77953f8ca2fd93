"""Text to quantities and back. The only module that formats bytes, seconds, rates and shares.

Inside bsprof everything is SI base units: seconds, bytes, FLOPs, ratios 0 to 1. KiB, MiB, GiB
are 1024-based; kB, MB, GB 1000-based.
"""

from __future__ import annotations

import math
import re

from bsprof.errors import UsageError

_BYTE_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_COUNT_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_SECOND_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z%]*)\s*")


def _split(text: str, what: str, example: str) -> tuple[float, str]:
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None:
        raise UsageError(f"cannot read {what} {text!r}", next_step=f"write it like {example}")
    return float(match[1]), match[2].lower()


def _finite(value: float, text: str, what: str) -> float:
    if not math.isfinite(value):
        raise UsageError(
            f"cannot read {what} {text!r}",
            found="a number too large to compute with",
            next_step="write a smaller one, or leave the option out for no limit",
        )
    return value


def parse_bytes(text: str) -> int:
    """Bytes from text like `20GiB`, `512 MB` or `4096` (plain numbers are bytes).

    Raises:
        UsageError: no number, an unknown unit, or nothing above zero.
    """
    value = _bytes(text)
    if value <= 0:
        raise UsageError(
            f"the amount of memory {text!r} is not above zero", next_step="write it like 20GiB"
        )
    return value


def _bytes(text: str) -> int:
    number, unit = _split(text, "the amount of memory", "20GiB or 512MiB")
    if unit not in _BYTE_UNITS and unit != "":
        raise UsageError(
            f"cannot read the amount of memory {text!r}",
            found=f"unit {unit!r}",
            next_step="use B, kB, MB, GB, TB (1000-based) or KiB, MiB, GiB, TiB (1024-based)",
        )
    return int(_finite(number * _BYTE_UNITS.get(unit, 1), text, "the amount of memory"))


def parse_rate(text: str) -> float:
    """Bytes per second from text like `24GB/s` or `900GB/s` (1000-based, as links are sold).

    Raises:
        UsageError: no number, an unknown unit, or nothing above zero.
    """
    value = _bytes(text.removesuffix("/s"))
    if value <= 0:
        raise UsageError(f"the rate {text!r} is not above zero", next_step="write it like 24GB/s")
    return float(value)


def parse_seconds(text: str) -> float:
    """Seconds from text like `90s`, `2m`, `1.5h`, `250ms` or `30` (plain numbers are seconds).

    Raises:
        UsageError: no number, an unknown unit, or nothing above zero.
    """
    number, unit = _split(text, "the duration", "90s or 2m")
    if unit not in _SECOND_UNITS and unit != "":
        raise UsageError(
            f"cannot read the duration {text!r}",
            found=f"unit {unit!r}",
            next_step="use ms, s, m or h",
        )
    value = _finite(number * _SECOND_UNITS.get(unit, 1.0), text, "the duration")
    if value <= 0:
        raise UsageError(f"the duration {text!r} is not above zero", next_step="write it like 90s")
    return value


def parse_share(text: str) -> float:
    """A ratio from text like `5%` or `0.05`.

    Raises:
        UsageError: no number, a unit other than `%`, or outside 0 to 1 (1 excluded).
    """
    number, unit = _split(text, "the share", "5% or 0.05")
    if unit not in ("", "%"):
        raise UsageError(f"cannot read the share {text!r}", next_step="write it like 5% or 0.05")
    value = number / 100 if unit == "%" else number
    if not 0 <= value < 1:
        raise UsageError(
            f"the share {text!r} is outside 0 to 100 %", next_step="write it like 5% or 0.05"
        )
    return value


def parse_share_or_bytes(text: str) -> float | int:
    """A ratio (float) from `5%` or `0.05`, or an amount of memory (int) from `2GiB`; zero of both.

    Raises:
        UsageError: as `parse_share` and, but for zero, `parse_bytes`.
    """
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is not None and match[2].lower() in _BYTE_UNITS:
        return _bytes(text)
    return parse_share(text)


def parse_parameters(text: str) -> int:
    """A number of parameters from text like `3B`, `124M`, `350k` or `62000`.

    Raises:
        UsageError: no number, or an unknown unit.
    """
    number, unit = _split(text, "the number of parameters", "3B or 124M")
    if unit not in _COUNT_UNITS:
        raise UsageError(
            f"cannot read the number of parameters {text!r}",
            found=f"unit {unit!r}",
            next_step="use k, M, B (a thousand million) or T",
        )
    return round(_finite(number * _COUNT_UNITS[unit], text, "the number of parameters"))


def format_parameters(value: float) -> str:
    """A number of parameters as people write it: `124M`, `8.03B`, `932k`."""
    return _scaled(value, ("", "k", "M", "B", "T"), 1000.0).replace(" ", "")


def format_bytes(value: float) -> str:
    """Bytes for people: `0 B`, `512 B`, `1.50 GiB`, three significant digits."""
    return _scaled(value, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"), 1024.0)


def format_rate(value: float, unit: str) -> str:
    """A rate for people: `format_rate(6.1e10, 'FLOP/s')` is `61.0 GFLOP/s`."""
    return _scaled(
        value, (unit, f"k{unit}", f"M{unit}", f"G{unit}", f"T{unit}", f"P{unit}"), 1000.0
    )


def format_seconds(value: float) -> str:
    """Seconds for people: `850 us`, `12.3 ms`, `4.56 s`, `3 min 20 s`, `2 h 05 min`."""
    if value < 0 or not math.isfinite(value):
        return f"{value} s"
    if value >= 3600:
        minutes = round(value / 60)
        return f"{minutes // 60} h {minutes % 60:02d} min"
    if value >= 120:
        seconds = round(value)
        return f"{seconds // 60} min {seconds % 60:02d} s"
    if value >= 1:
        return f"{_digits(value)} s"
    if value >= 1e-3:
        return f"{_digits(value * 1e3)} ms"
    return f"{_digits(value * 1e6)} us"


def format_share(value: float) -> str:
    """A ratio for people: `0.051` is `5.1 %`, `0.42` is `42 %`."""
    percent = value * 100
    return f"{percent:.0f} %" if abs(percent) >= 10 else f"{percent:.1f} %"


def format_count(value: float) -> str:
    """A count or plain rate for people, three significant digits: `1,234`, `45.1`, `3.2`."""
    return f"{value:,.0f}" if abs(value) >= 1000 else _digits(value)


def _digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def _scaled(value: float, names: tuple[str, ...], base: float) -> str:
    amount, index = float(value), 0
    while abs(amount) >= base * 0.9995 and index < len(names) - 1:
        amount /= base
        index += 1
    if index == 0:
        return f"{amount:.0f} {names[0]}"
    sign = "-" if amount < 0 else ""
    return f"{sign}{_digits(abs(amount))} {names[index]}"
