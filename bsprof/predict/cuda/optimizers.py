"""Which form of an optimizer a CUDA device gets by default. Pure: loads no torch.

From torch 2.0 on `foreach` is the default on CUDA (`_default_to_fused_or_foreach`), which holds
temporaries of all parameters at once; on the CPU it is not. Fused ones run only where asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from bsprof.predict.target import Semantics, Software, TraceTarget

FOREACH_DEFAULT_SINCE = (2, 0)


def foreach_by_default(software: Software) -> bool:
    """Whether optimizers and gradient clipping take all tensors at once unless told otherwise."""
    return software.torch >= FOREACH_DEFAULT_SINCE


def optimizer_defaults(
    optimizer_class: type, options: Mapping[str, Any], target: TraceTarget
) -> dict[str, Any]:
    """The options with `foreach` as the target's torch would have chosen it.

    What the options say of `foreach` and `fused` stands; optimizers without such a choice, and
    those that are not torch's own, keep their options.
    """
    chosen = dict(options)
    parameters = inspect.signature(optimizer_class).parameters
    decided = chosen.get("foreach") is not None or chosen.get("fused") is not None
    if target.semantics is not Semantics.CUDA or decided or "foreach" not in parameters:
        return chosen
    if not any(base.__module__.startswith("torch.optim.") for base in optimizer_class.__mro__):
        return chosen
    differentiable = bool(chosen.get("differentiable"))
    chosen["foreach"] = foreach_by_default(target.software) and not differentiable
    return chosen


def host_state(options: Mapping[str, Any]) -> frozenset[str]:
    """Keys of the optimizer's state that stay in host memory: step counters, unless a kernel on
    the device reads them (`capturable`, `fused`)."""
    on_device = bool(options.get("capturable")) or bool(options.get("fused"))
    return frozenset() if on_device else frozenset({"step"})
