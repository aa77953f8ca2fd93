"""An object, or the function that makes it: people have both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from bsprof.errors import WorkloadError


def made(source: Any) -> Any:
    """What a function returns; data sets, loaders, modules and trainers are what they are."""
    objects = ("__getitem__", "__iter__", "train_dataloader", "compute_loss")
    is_class = isinstance(source, type)
    if callable(source) and (is_class or not any(hasattr(source, name) for name in objects)):
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
