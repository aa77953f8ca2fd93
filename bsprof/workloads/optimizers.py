"""The optimizer of a workload spec: by name from `torch.optim`, with options by name."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bsprof.errors import UsageError
from bsprof.records import Scalar
from bsprof.workloads.batches import tensors_in

# L-BFGS calls the model itself, any number of times; SparseAdam takes sparse gradients only.
_NOT_A_STEP = ("lbfgs", "sparseadam", "optimizer")


def optimizer_names() -> tuple[str, ...]:
    """Names that `--optimizer` takes, sorted."""
    return tuple(sorted(_classes()))


def make_optimizer(
    name: str, options: Mapping[str, Scalar], parameters: Iterable[nn.Parameter]
) -> Optimizer:
    """An optimizer of `torch.optim` over the parameters.

    Options whose default is a tuple are given as text, `betas=0.9,0.95`.

    Raises:
        UsageError: no optimizer of that name, no option of that name, or a value it refuses.
    """
    classes = _classes()
    if name not in classes:
        near = difflib.get_close_matches(name.lower(), classes, n=3, cutoff=0.5)
        raise UsageError(
            f"unknown optimizer {name!r}",
            found=f"near: {', '.join(near)}" if near else "",
            next_step=f"use one of {', '.join(optimizer_names())}",
        )
    known = dict(inspect.signature(classes[name]).parameters)
    del known["params"]
    arguments = {key: _value(name, key, value, known) for key, value in options.items()}
    try:
        return cast(Optimizer, classes[name](parameters, **arguments))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the optimizer {name} refuses its options or these parameters",
            found=str(error),
            next_step=f"its options: {', '.join(sorted(known))}",
        ) from error


def state_tensors(optimizer: Optimizer) -> Iterator[Tensor]:
    """Every tensor that the optimizer keeps between steps."""
    for state in optimizer.state.values():
        yield from tensors_in(state)


def _classes() -> dict[str, type[Any]]:
    found = {
        name.lower(): value
        for name, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, Optimizer)
    }
    return {name: value for name, value in found.items() if name not in _NOT_A_STEP}


def _value(name: str, key: str, value: Scalar, known: dict[str, inspect.Parameter]) -> Any:
    """One option's value as the optimizer wants it."""
    if key not in known:
        near = difflib.get_close_matches(key, known, n=2, cutoff=0.5)
        raise UsageError(
            f"the optimizer {name} has no option {key!r}",
            found=f"near: {', '.join(near)}" if near else "",
            next_step=f"its options: {', '.join(sorted(known))}",
        )
    if not isinstance(known[key].default, tuple) or not isinstance(value, str):
        return value
    try:
        return tuple(float(part) for part in value.split(","))
    except ValueError as error:
        raise UsageError(
            f"cannot read the optimizer option {key}={value}",
            next_step=f"write numbers with commas, like {key}=0.9,0.95",
        ) from error
