"""One number with its 90 % interval."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A value with the low and high end of its 90 % interval, in the unit its field names.

    `low == value == high` for exact counts. Raises `ValueError` unless
    `low <= value <= high` and all three are finite.
    """

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.value, self.low, self.high))):
            raise ValueError(
                f"a quantity must be finite, not {self.low} .. {self.value} .. {self.high}"
            )
        if not self.low <= self.value <= self.high:
            raise ValueError(
                f"value {self.value} lies outside its interval {self.low} .. {self.high}"
            )

    @classmethod
    def exact(cls, value: float) -> Quantity:
        """A quantity known without error (a count, a byte peak read from an allocator)."""
        return cls(value=value, low=value, high=value)

    @classmethod
    def ordered(cls, value: float, low: float, high: float) -> Quantity:
        """A quantity whose ends are widened, if rounding put them inside, to contain the value."""
        return cls(value=value, low=min(low, value), high=max(high, value))

    def scaled(self, factor: float) -> Quantity:
        """This quantity times a factor of at least zero known without error."""
        return Quantity(value=self.value * factor, low=self.low * factor, high=self.high * factor)

    @property
    def relative_width(self) -> float:
        """Full width of the interval over the value; 0 for an exact zero, inf for another zero."""
        width = self.high - self.low
        if self.value == 0:
            return 0.0 if width == 0 else math.inf
        return width / abs(self.value)


FASTEST = 100
"""A rate's high end is at most this many times its value: seconds whose interval reaches down to
zero bound it nowhere, and a profile holds no infinity."""


def per_second(amount: float, seconds: Quantity) -> Quantity:
    """`amount` done in `seconds` as a rate: amount / value, with the ends swapped.

    Args:
        amount: What was done, zero or more.
        seconds: Above zero; its low end may be zero.
    """
    low_s = max(seconds.low, seconds.value / FASTEST)
    return Quantity.ordered(amount / seconds.value, amount / seconds.high, amount / low_s)
