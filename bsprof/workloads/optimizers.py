"""The optimizer of a workload spec: by name from `torch.optim` or bitsandbytes, with options."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bsprof.errors import UsageError
from bsprof.records import Scalar
from bsprof.workloads.batches import tensors_in

# L-BFGS calls the model itself, any number of times; SparseAdam takes sparse gradients only.
_NOT_A_STEP = ("lbfgs", "sparseadam", "optimizer")

EIGHT_BIT = {
    "adam8bit": "Adam8bit",
    "adamw8bit": "AdamW8bit",
    "lion8bit": "Lion8bit",
    "pagedadamw8bit": "PagedAdamW8bit",
    "sgd8bit": "SGD8bit",
}
"""Optimizers of bitsandbytes that keep their state in 8 bits, and their classes there."""


def optimizer_names() -> tuple[str, ...]:
    """Names that `--optimizer` takes here, sorted; 8-bit ones where bitsandbytes is installed."""
    installed = importlib.util.find_spec("bitsandbytes") is not None
    return tuple(sorted([*_classes(), *(EIGHT_BIT if installed else ())]))


def make_optimizer(
    name: str, options: Mapping[str, Scalar], parameters: Iterable[nn.Parameter]
) -> Optimizer:
    """An optimizer of `torch.optim` or of bitsandbytes over the parameters.

    Options whose default is a tuple are given as text, `betas=0.9,0.95`.

    Raises:
        UsageError: no optimizer of that name, no option of that name, or a value it refuses; an
            8-bit optimizer without bitsandbytes, or a paged one on the CPU.
    """
    over = list(parameters)
    made = _eight_bit(name, over) if name in EIGHT_BIT else _of_torch(name)
    known = dict(inspect.signature(made).parameters)
    del known["params"]
    arguments = {key: _value(name, key, value, known) for key, value in options.items()}
    try:
        return cast(Optimizer, made(over, **arguments))
    except (TypeError, ValueError, NotImplementedError) as error:
        raise UsageError(
            f"the optimizer {name} refuses its options or these parameters",
            found=str(error),
            next_step=f"its options: {', '.join(sorted(known))}",
        ) from error


def state_tensors(optimizer: Optimizer) -> Iterator[Tensor]:
    """Every tensor that the optimizer keeps between steps."""
    for state in optimizer.state.values():
        yield from tensors_in(state)


def _of_torch(name: str) -> type[Any]:
    classes = _classes()
    if name not in classes:
        near = difflib.get_close_matches(name.lower(), [*classes, *EIGHT_BIT], n=3, cutoff=0.5)
        raise UsageError(
            f"unknown optimizer {name!r}",
            found=f"near: {', '.join(near)}" if near else "",
            next_step=f"use one of {', '.join(optimizer_names())}",
        )
    return classes[name]


def _eight_bit(name: str, parameters: Sequence[nn.Parameter]) -> type[Any]:
    try:
        package = importlib.import_module("bitsandbytes.optim")
    except ImportError as error:
        raise UsageError(
            f"the optimizer {name} needs bitsandbytes",
            found=str(error),
            next_step="pip install bitsandbytes, where bsprof runs",
        ) from error
    if name.startswith("paged") and all(p.device.type == "cpu" for p in parameters):
        raise UsageError(
            f"the optimizer {name} has no effect on cpu",
            found="state that lies in the memory of the host already",
            next_step=f"use {name.removeprefix('paged')}",
        )
    return cast(type[Any], getattr(package, EIGHT_BIT[name]))


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
