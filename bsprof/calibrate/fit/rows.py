"""What a fit reads: works with the seconds that they took somewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from bsprof.accounting.work import Work
from bsprof.predict.roofline.groups import law_name
from bsprof.predict.roofline.shape import FIELDS, Shape, shape_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One measured work.

    Attributes:
        work: What ran.
        seconds: Device seconds (or, with a floor that the source adds, seconds around it).
        device: Catalogue name.
        source: File and machine: rows of one source share a scale.
        has_floor: Whether the source's times hold a fixed cost of their own (host, timing).
        extra_bytes: Moved besides, in copies that the time holds and the work does not.
    """

    work: Work
    seconds: float
    device: str
    source: str
    has_floor: bool = False
    extra_bytes: int = 0


def by_law(rows: Sequence[KernelRow]) -> dict[str, list[KernelRow]]:
    """Rows by the law that their works follow, laws sorted by name."""
    found: dict[str, list[KernelRow]] = {}
    for row in rows:
        found.setdefault(law_name(row.work), []).append(row)
    return dict(sorted(found.items()))


def stacked(works: Sequence[Work]) -> Shape:
    """The shapes of works as arrays, one entry a work."""
    import numpy as np

    shapes = [shape_of(work) for work in works]
    return Shape(**{name: np.array([getattr(shape, name) for shape in shapes]) for name in FIELDS})


def some_of(shape: Shape, chosen: FloatArray) -> Shape:
    """The entries of a stacked shape that a mask or index array chooses."""
    return replace(
        shape, **{field.name: getattr(shape, field.name)[chosen] for field in fields(shape)}
    )
