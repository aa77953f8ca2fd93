"""What the benchmarks run: short pieces of torch code by name. Worker side; loads torch."""

from collections.abc import Mapping

from bsprof.calibrate.programs import (
    attention,
    convolutions,
    copies,
    host,
    images,
    lookups,
    pointwise,
    products,
    rows,
    steps,
)
from bsprof.calibrate.programs.program import Builder, Maker, Program

PROGRAMS: Mapping[str, Builder] = {
    **products.PROGRAMS,
    **convolutions.PROGRAMS,
    **attention.PROGRAMS,
    **pointwise.PROGRAMS,
    **rows.PROGRAMS,
    **images.PROGRAMS,
    **lookups.PROGRAMS,
    **copies.PROGRAMS,
    **steps.PROGRAMS,
    **host.PROGRAMS,
}
"""Builders by name."""

__all__ = ["PROGRAMS", "Builder", "Maker", "Program"]
