"""Whether a user's function can be called as bsprof will call it, told before anything is built."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from bsprof.errors import WorkloadError


def check_call(
    name: str, function: Any, arguments: Sequence[str], *, named: Sequence[str] = ()
) -> None:
    """Refuse a function that does not take those arguments, by position, and those named.

    What is not callable, and what has no signature that Python can read, passes.

    Args:
        name: What the function is for, as the user wrote it.
        function: What was given.
        arguments: Names of the arguments that it will be called with.
        named: Those that it will get by name besides.

    Raises:
        WorkloadError: naming the call that is made, and the parameters that were found where.
    """
    signature = read_signature(function)
    if signature is None or takes(signature, len(arguments), named):
        return
    raise WorkloadError(
        f"`{name}` of the workload must be callable as {name}({', '.join(arguments)})",
        found=f"{_place(function)}its parameters are {signature}",
        next_step="give it these parameters, in this order, and others a default",
    )


def read_signature(function: Any) -> inspect.Signature | None:
    """The signature of a callable; None where there is none to read (functions written in C)."""
    if not callable(function):
        return None
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def takes(signature: inspect.Signature, count: int, named: Sequence[str] = ()) -> bool:
    """Whether a function can be called with so many arguments, and those that are named."""
    try:
        signature.bind(*[None] * count, **dict.fromkeys(named))
    except TypeError:
        return False
    return True


def accepts(function: Callable[..., Any], parameter: str) -> bool:
    """Whether a function has a parameter of that name."""
    signature = read_signature(function)
    return signature is not None and parameter in signature.parameters


def _place(function: Any) -> str:
    """`file.py:12: ` of a function written in Python; empty for other callables."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}: " if code is not None else ""
