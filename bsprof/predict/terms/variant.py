"""Plausible behaviours of the libraries: their spread is the interval of a prediction."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bsprof.records import Quantity


class End(StrEnum):
    """Which end of a term's interval holds."""

    LOW = "low"
    NOMINAL = "nominal"
    HIGH = "high"

    def of(self, quantity: Quantity) -> int:
        """That end of a quantity, in whole bytes."""
        ends = {End.LOW: quantity.low, End.NOMINAL: quantity.value, End.HIGH: quantity.high}
        return round(ends[self])


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How the libraries behave; nobody publishes it, so several behaviours are plausible.

    Attributes:
        name: For reports and tests.
        forward_factor, data_factor, weight_factor: Workspace of a convolution's forward, of its
            gradient with respect to the input and of that with respect to the weight, in bytes
            per byte of input and output together (`bsprof.predict.terms.convolution`).
        plain_share: Share of those that convolutions without tensor cores take.
        outside: Which end of what lies outside the allocator.
        slack: Share of the reserved bytes that nothing explains.
        scratch: Factor on the kernels' own temporaries.
        reserve: Factor on what cuDNN keeps of recurrent layers.
        smallest_plans: Whether convolutions run with what their smallest plan needs, as they do
            when a larger workspace is refused. Only whether something fits is asked of it.
    """

    name: str
    forward_factor: float = 0.0
    data_factor: float = 1.5
    weight_factor: float = 1.5
    plain_share: float = 0.0
    outside: End = End.NOMINAL
    slack: float = 0.0
    scratch: float = 1.0
    reserve: float = 1.0
    smallest_plans: bool = False


NOMINAL = Variant(name="nominal")

SLACK = 0.012
"""Reserved memory of public A100 runs that neither workspaces nor anything else explains."""

LEAST_RESERVE, MOST_RESERVE = 0.8, 1.4
"""Around the reserve space of recurrent layers that is assumed (`bsprof.predict.cuda.recurrent`):
cuDNN may choose another algorithm with another layout. A judgement, from two published sizes."""

VARIANTS: tuple[Variant, ...] = (
    NOMINAL,
    Variant(
        name="no workspace",
        data_factor=0.0,
        weight_factor=0.0,
        outside=End.LOW,
        reserve=LEAST_RESERVE,
    ),
    Variant(name="small workspace", data_factor=1.0, weight_factor=1.0),
    Variant(
        name="large workspace",
        forward_factor=1.0,
        data_factor=2.0,
        weight_factor=2.0,
        plain_share=0.5,
        outside=End.HIGH,
        slack=SLACK,
        reserve=MOST_RESERVE,
    ),
    Variant(name="slack", outside=End.HIGH, slack=SLACK),
)
"""The nominal behaviour first. The lowest and highest answer of all of them are the ends of the
90 % interval. Reserved memory is not monotone in a workspace, hence the one in between: it can be
lowest or highest."""

SMALLEST = Variant(
    name="smallest plans",
    data_factor=0.0,
    weight_factor=0.0,
    smallest_plans=True,
)
"""Decides whether a size fits: a convolution whose workspace is refused runs by a smaller plan."""
