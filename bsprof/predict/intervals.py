"""How far predicted bytes may be off: the one place for the widths of intervals.

The ends of an interval are the lowest and highest answer of plausible variants of the libraries
(`bsprof.predict.terms.VARIANTS`), then widened by a share for what no variant knows.
"""

from __future__ import annotations

from collections.abc import Iterable

from bsprof.records import Quantity

ALLOCATED_SHARE = 0.01
"""Live bytes: a traced step's tensors peak within 0.5 % of those of a real run on the CPU, in every
kind of model tested. What kernels take beside them is in the variants; the rest is a margin."""

RESERVED_SHARE = 0.02
"""Reserved and used bytes: 87 % of public A100-40 measurements of timm models lie within the range
of the variants widened by this share (prototype on 130 models)."""


def spanned(value: float, others: Iterable[float], share: float) -> Quantity:
    """A value whose 90 % interval spans what else is plausible, and a share more on either side.

    Args:
        value: The nominal answer.
        others: Answers of the variants.
        share: Of the lowest and the highest of all of them.
    """
    ends = [value, *others]
    return Quantity.ordered(value, min(ends) * (1 - share), max(ends) * (1 + share))
