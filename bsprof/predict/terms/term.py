"""One named amount of memory that is not a tensor of the model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bsprof.records import Quantity


class Place(StrEnum):
    """Where it lies: in the caching allocator, or outside it on the device."""

    ALLOCATOR = "allocator"
    OUTSIDE = "outside"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A named amount with its interval and where the number comes from."""

    name: str
    bytes: Quantity
    place: Place
    source: str
