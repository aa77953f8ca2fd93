"""Reads plain option values without the validation library that newer versions of typer load.

typer from 0.29 on hands every value that is not a flag to pydantic, whose import takes longer than
`bsprof recommend` itself. Text and whole numbers that are plainly what their option wants are read
here; everything else, and everything that is wrong, goes the usual way, so that no message and no
rule changes. Other versions of typer have no such hook, and are left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

_DIGITS = 18  # below 2**63; anything longer goes the usual way


def lighten(program: Any) -> None:
    """Let the options and arguments of every command of a program be read lightly."""
    for command in (program, *getattr(program, "commands", {}).values()):
        for parameter in command.get_params(typer.Context(command)):  # with --help
            usual = getattr(parameter, "get_runtime_param", None)
            if usual is not None:
                parameter.get_runtime_param = _Reader(usual)


class _Reader:
    """Stands in for typer's own `get_runtime_param`, and for what it returns."""

    def __init__(self, usual: Callable[[], Any]) -> None:
        self._usual = usual

    def __call__(self) -> _Reader:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of a parameter, from what the command line or a default gave."""
        descriptor = param.type_descriptor
        repeats = param.multiple or param.nargs == -1
        if value is None:
            return () if repeats else None
        if repeats:
            if descriptor.annotation == list[str] and _are_texts(value):
                return list(value)
        elif descriptor.annotation is str and type(value) is str:
            return value
        elif descriptor.annotation is int:
            number = _whole(value)
            bounds = descriptor.parameter_info
            if number is not None and _within(number, bounds.min, bounds.max):
                return number
        return self._usual().coerce(value, param=param, ctx=ctx)


def _are_texts(value: Any) -> bool:
    return type(value) in (list, tuple) and all(type(item) is str for item in value)


def _whole(value: Any) -> int | None:
    if type(value) is int:
        return value
    plain = type(value) is str and value.isascii() and value.isdecimal() and len(value) <= _DIGITS
    return int(value) if plain else None


def _within(number: int, low: float | None, high: float | None) -> bool:
    return (low is None or number >= low) and (high is None or number <= high)
