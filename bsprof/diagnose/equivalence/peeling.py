"""Takes one cause at a time out of a forward pass: dropout, batch statistics, counted rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

_DROPOUTS = frozenset(
    {
        F.dropout,
        F.dropout1d,
        F.dropout2d,
        F.dropout3d,
        F.alpha_dropout,
        F.feature_alpha_dropout,
        torch.dropout,
    }
)
_RATES = ("p", "rate", "drop_prob", "drop_path", "dropout")
"""Attributes by which modules name the share of what they drop."""
_SDPA_DROPOUT = 4
"""Place of `dropout_p` among the arguments of scaled_dot_product_attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peel:
    """What is taken out."""

    dropout: bool = False
    batch_norm: bool = False
    frequency: bool = False


class _Functions(TorchFunctionMode):
    """Stands between the model and the functions that drop or that normalise over the batch."""

    def __init__(self, peel: Peel) -> None:
        super().__init__()
        self._peel = peel

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self._peel.dropout:
            if func in _DROPOUTS:
                return args[0] if args else kwargs["input"]
            if func is F.scaled_dot_product_attention:
                if len(args) > _SDPA_DROPOUT:
                    args = (*args[:_SDPA_DROPOUT], 0.0, *args[_SDPA_DROPOUT + 1 :])
                else:
                    kwargs = {**kwargs, "dropout_p": 0.0}
            elif func is F.multi_head_attention_forward:
                return func(**_bound(func, args, kwargs, dropout_p=0.0))
        if self._peel.batch_norm and func is F.batch_norm:
            return func(**_fixed_statistics(_bound(func, args, kwargs, training=False)))
        return func(*args, **kwargs)


@contextmanager
def peeled(model: nn.Module, peel: Peel) -> Iterator[None]:
    """Run the model without what `peel` names; it is a copy, whose settings may be changed."""
    if peel == Peel():
        yield
        return
    if peel.dropout:
        for module in dropping(model).values():
            for rate in _RATES:
                if isinstance(getattr(module, rate, None), float):
                    setattr(module, rate, 0.0)
    if peel.frequency:
        for embedding in counting(model).values():
            embedding.scale_grad_by_freq = False
    with _Functions(peel):
        yield


def dropping(model: nn.Module) -> dict[str, nn.Module]:
    """Modules that drop at random, by name: their class says so, or they hold a rate."""
    return {
        name: module
        for name, module in model.named_modules()
        if module.training and _is_dropping(module)
    }


def normalising(model: nn.Module) -> dict[str, nn.Module]:
    """Modules that normalise by the statistics of the batch, by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
    }


def counting(model: nn.Module) -> dict[str, nn.Embedding]:
    """Embeddings that divide gradients by how often a row occurs in the batch, by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and module.scale_grad_by_freq
    }


def _is_dropping(module: nn.Module) -> bool:
    named = "drop" in type(module).__name__.lower() or "stochastic" in type(module).__name__.lower()
    kinds = isinstance(module, nn.RNNBase | nn.MultiheadAttention)
    if not (named or kinds):
        return False
    rates = [getattr(module, rate, None) for rate in _RATES]
    return any(isinstance(rate, float) and rate > 0 for rate in rates)


def _bound(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], **changes: Any
) -> dict[str, Any]:
    found = inspect.signature(func).bind(*args, **kwargs)
    found.apply_defaults()
    return {**found.arguments, **changes}


def _fixed_statistics(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of batch_norm with statistics that do not depend on the batch."""
    if arguments["running_mean"] is None:
        given: Tensor = arguments["input"]
        channels = given.shape[1]
        arguments["running_mean"] = given.new_zeros(channels)
        arguments["running_var"] = given.new_ones(channels)
    return arguments
