"""What lies outside the caching allocator."""

from __future__ import annotations

from collections.abc import Sequence

from bsprof.predict.target import Software
from bsprof.predict.terms import cublas
from bsprof.predict.terms.collectives import communicator_term
from bsprof.predict.terms.context import context_term
from bsprof.predict.terms.variant import Variant
from bsprof.records import DeviceSpec, Place, Quantity, Term


def outside_terms(
    device: DeviceSpec, software: Software, *, world_size: int = 1
) -> tuple[Term, ...]:
    """Context, buffers of collectives and, with old torch, cuBLAS' own workspaces.

    Args:
        device: Where it would run.
        software: Whose defaults apply.
        world_size: Ranks; one has no communicator.
    """
    terms = [context_term(device, software)]
    if not cublas.is_inside(software) and device.kind == "cuda":
        block = cublas.workspace_bytes(device, software)
        terms.append(
            Term(
                name=cublas.NAME,
                bytes=Quantity(value=2 * block, low=0, high=2 * block),
                place=Place.OUTSIDE,
                source="cuBLAS' own default, one block per handle, before torch 2.0 (#86645)",
            )
        )
    if world_size > 1:
        terms.append(communicator_term(device))
    return tuple(terms)


def outside_bytes(terms: Sequence[Term], variant: Variant) -> int:
    """Sum of what lies outside, at the end of its interval that a variant takes."""
    return sum(variant.outside.of(term.bytes) for term in terms if term.place is Place.OUTSIDE)
