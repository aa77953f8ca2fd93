"""Worlds in which a prediction's uncertain factors have other values, the same at every size.

What is not known of a device (how fast this very machine is, how well its kernels for one class of
work do) errs alike at all micro-batch sizes. So it is drawn once per world and used for all of
them: two sizes compared world by world show what is left of the uncertainty in their difference.
"""

from __future__ import annotations

import functools
import math
import random
from statistics import NormalDist

WORLDS = 60
"""Each stands for 1/60 of the probability: the ends of a 90 % interval lie between the third and
the fourth from either side."""


@functools.cache
def draws(name: str) -> tuple[float, ...]:
    """Standard normal draws of one factor, one for each world; the same for the same name.

    One draw comes from each of `WORLDS` equally likely parts of the distribution, in an order that
    depends on the name: a Latin hypercube over all names (McKay et al. 1979).
    """
    order = list(range(WORLDS))
    random.Random(name).shuffle(order)
    normal = NormalDist()
    return tuple(normal.inv_cdf((place + 0.5) / WORLDS) for place in order)


def factors(name: str, spread: float) -> tuple[float, ...]:
    """A positive factor in each world, its median 1, its logarithm normal.

    Args:
        name: Of the factor.
        spread: Standard deviation of its logarithm.
    """
    return tuple(math.exp(spread * z) for z in draws(name))
