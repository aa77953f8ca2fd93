"""Installed packages whose models are measured: imported when asked for, with answers if not."""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType, TracebackType
from typing import Any

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import Scalar

_UNEXPECTED = re.compile(
    r"(?P<owner>\w+)(?:\.__init__|\.__new__)?\(\) got an unexpected keyword argument "
    r"'(?P<key>\w+)'"
)
"""Python's own words for a keyword argument that a function does not have."""


def import_package(package: str, model: str) -> ModuleType:
    """The package, imported.

    Args:
        package: Its name, to import and to install.
        model: The `--model` that needs it, for the message.

    Raises:
        WorkloadError: it, or a package that it needs, is not installed (the message says how to
            install it), or it breaks while it is imported, as torchvision does beside a torch
            that it was not built for.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        missing = (error.name or package).partition(".")[0]
        found = "it is not installed where bsprof runs"
        raise WorkloadError(
            f"--model {model} needs the package {package}",
            found=found if missing == package else f"{package} needs {missing}, and {found}",
            next_step=f"pip install {missing}",
        ) from error
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        raise WorkloadError(
            f"cannot import {package}, which --model {model} needs",
            found=f"{type(error).__name__}: {error} ({_versions('torch', 'torchvision', package)})",
            next_step=_mending(package, error),
        ) from error


def find_name(name: str, known: Iterable[str]) -> str:
    """Names of `known` that are near to `name`, in words; empty when none is."""
    near = difflib.get_close_matches(name.lower(), [*known], n=3, cutoff=0.5)
    return f"near: {', '.join(near)}" if near else ""


def refuse_reserved(model: str, options: Mapping[str, Scalar], why: Mapping[str, str]) -> None:
    """Refuse `--model-option`s that bsprof decides itself.

    Args:
        model: The `--model`, for the message.
        options: What was given.
        why: Reasons, by the names that are refused.

    Raises:
        UsageError: one of them was given, or an option without a value.
    """
    for key, value in options.items():
        if key in why:
            raise UsageError(f"--model-option {key} cannot be given to {model}", next_step=why[key])
        if value is None:
            raise UsageError(
                f"--model-option {key}=none has no effect on {model}", next_step="leave it out"
            )


def whole_number(options: Mapping[str, Any], key: str, default: int, *, least: int = 1) -> int:
    """A whole number among the options, or its default.

    Raises:
        UsageError: the option is something else, or below the least.
    """
    value = options.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(
            f"cannot read --model-option {key}={value}",
            next_step=f"give a whole number, {least} or more",
        )
    return value


@contextmanager
def checked_options(model: str, options: Mapping[str, Scalar]) -> Iterator[None]:
    """Turn Python's complaint about an unknown keyword argument into an answer.

    Args:
        model: The `--model`, for the message.
        options: The `--model-option`s; a complaint about another argument is passed on.

    Raises:
        UsageError: a function that builds the model does not take one of the options.
    """
    try:
        yield
    except TypeError as error:
        unexpected = _UNEXPECTED.search(str(error))
        if unexpected is None or unexpected["key"] not in options:
            raise
        key, owner = unexpected["key"], unexpected["owner"]
        known = _parameters(owner, error.__traceback__)
        raise UsageError(
            f"{model} has no --model-option {key}",
            found=find_name(key, known),
            next_step=f"{owner} takes {', '.join(known)}" if known else f"see what {owner} takes",
        ) from error


def _parameters(owner: str, trace: TracebackType | None) -> list[str]:
    """Parameters of the function or class of that name, seen from where it was called."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return []
    frame = trace.tb_frame
    for value in (*frame.f_locals.values(), *frame.f_globals.values()):
        if callable(value) and getattr(value, "__name__", None) == owner:
            return _keywords(value)
    return []


def _keywords(function: Any) -> list[str]:
    """Names that a function takes as keywords."""
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sorted(p.name for p in parameters if p.kind not in starred and p.name != "self")


def _versions(*packages: str) -> str:
    """Names and versions of those that are installed, each once."""
    versions = []
    for package in dict.fromkeys(packages):
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(versions)


def _mending(package: str, error: BaseException) -> str:
    if "torchvision" in (package, *re.findall(r"\w+", str(error))):
        return (
            "torchvision works only beside the torch that it was built for: install both "
            "together, from one source, pip install --upgrade torch torchvision"
        )
    return f"pip install --upgrade {package}"
