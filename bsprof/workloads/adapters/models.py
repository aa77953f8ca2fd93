"""An object, or the function that makes it: people have both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from bsprof.errors import WorkloadError


def made(source: Any) -> Any:
    """What a function, or a class, returns; modules, data sets and trainers are what they are."""
    parts = ("__getitem__", "__iter__", "train_dataloader", "compute_loss")
    is_object = isinstance(source, nn.Module) or any(hasattr(source, part) for part in parts)
    if callable(source) and (isinstance(source, type) or not is_object):
        return source()
    return source


def model_function(model: Any) -> Callable[[], nn.Module]:
    """`model` itself where it is a function; one that returns it where it is a module.

    Raises:
        WorkloadError: it is neither.
    """
    if isinstance(model, nn.Module):
        return lambda: model
    if callable(model):
        return model  # type: ignore[no-any-return]
    raise WorkloadError(
        "`model` must be a torch.nn.Module, or a function that makes one",
        found=f"a {type(model).__name__}",
        next_step="write model=lambda: MyModel(...)",
    )
