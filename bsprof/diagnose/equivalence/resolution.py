"""How finely a model in double precision computes: parts of it may be written for fp32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

TOLERANCES = {
    torch.float64: 1e-9,
    torch.float32: 1e-5,
    torch.bfloat16: 3e-2,
    torch.float16: 3e-2,
}
"""Relative difference that counts, by the coarsest type seen. Rounding stays well below, and every
cause shows far above, save in 16 bits, where small ones are lost."""


class _Coarsest(TorchDispatchMode):
    """Watches the results of all operators."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kind: torch.dtype = torch.float64

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(made):
            coarser = (
                isinstance(leaf, Tensor)
                and leaf.dtype in TOLERANCES
                and TOLERANCES[leaf.dtype] > TOLERANCES[self.kind]
            )
            if coarser:
                self.kind = leaf.dtype
        return made


def coarsest(run: Callable[[], object]) -> torch.dtype:
    """The coarsest floating type of any result while `run` runs; float64 at best."""
    seen = _Coarsest()
    with seen:
        run()
    return seen.kind
