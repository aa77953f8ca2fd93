"""Replaces kernels of torch's own operators, and attributes of its modules, for a while.

Process-wide while active, whatever the thread: only for a worker that does nothing else.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

COMPOSITE = "CompositeImplicitAutograd"
"""Key of operators that are made of others: a kernel there sees calls from Python and from C++."""

AUTOCAST = "AutocastCPU"

Kernel = Callable[..., Any]


def known(name: str) -> bool:
    """Whether the installed torch has the operator `aten::name` (with its overload)."""
    packet, _, overload = name.partition(".")
    found = torch._C._get_schema if hasattr(torch._C, "_get_schema") else None
    if found is None:  # pragma: no cover - every torch since 1.13 has it
        return hasattr(torch.ops.aten, packet)
    try:
        found(f"aten::{packet}", overload)
    except RuntimeError:
        return False
    return True


def operator(name: str) -> Any:
    """The overload `aten::name`; without a dot the default one."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


@contextmanager
def kernels(replacements: Mapping[str, Kernel], key: str) -> Iterator[None]:
    """Has `aten::NAME` run the given kernels at a dispatch key; the former ones return after.

    Operators that the installed torch does not have are left out.
    """
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    overriding = "allow_override" in inspect.signature(library.impl).parameters
    options = {"allow_override": True} if overriding else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of every kernel that is replaced
            for name, kernel in replacements.items():
                if known(name):
                    library.impl(name, kernel, key, **options)
        yield
    finally:
        library._destroy()


@contextmanager
def attribute(owner: object, name: str, value: object) -> Iterator[None]:
    """Sets an attribute while active."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
