"""Rates from seconds."""

import pytest

from bsprof.records import Quantity, per_second


def test_the_ends_are_swapped():
    rate = per_second(8, Quantity(value=2.0, low=1.0, high=4.0))
    assert (rate.low, rate.value, rate.high) == (2.0, 4.0, 8.0)


@pytest.mark.parametrize("low", [0.0, -1.0])
def test_seconds_that_may_be_zero_bound_the_rate_at_a_hundred_times(low):
    rate = per_second(8, Quantity(value=2.0, low=low, high=4.0))
    assert rate.high == 400.0
