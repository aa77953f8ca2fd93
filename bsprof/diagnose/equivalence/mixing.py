"""Where samples of a batch first meet: the first module whose output depends on the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bsprof.diagnose.equivalence.gradients import SEED, Bench, sow
from bsprof.diagnose.equivalence.peeling import Peel
from bsprof.workloads.batches import tensors_in

_NEAR = 1e-7
"""Relative: far above rounding in double precision, far below what mixing does."""

Outputs = list[tuple[str, Tensor]]


def first_mixing(bench: Bench, whole: Any, pieces: Sequence[Any], peel: Peel) -> str | None:
    """Name of the module, `""` for the model as a whole; None where no module mixes: the loss.

    Outputs of the whole batch are compared, in the order they are made, with those of the pieces
    put together along their leading dimension; others cannot be compared and are left out.
    """
    together = _outputs(bench, whole, peel)
    apart = [_outputs(bench, piece, peel) for piece in pieces]
    for place, (name, wanted) in enumerate(together):
        rows = [outputs[place] for outputs in apart if place < len(outputs)]
        if len(rows) < len(apart) or any(other != name for other, _ in rows):
            return None  # the passes took different ways
        parts = [tensor for _, tensor in rows]
        if any(part.dim() == 0 or part.shape[1:] != wanted.shape[1:] for part in parts):
            continue
        found = torch.cat(parts)
        if found.shape != wanted.shape:
            continue
        if float((found - wanted).norm()) > _NEAR * max(float(wanted.norm()), 1e-300):
            return name
    return None


def _outputs(bench: Bench, piece: Any, peel: Peel) -> Outputs:
    model = bench.fresh()
    found: Outputs = []

    def keep(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            for tensor in tensors_in(output):
                if tensor.is_floating_point():
                    found.append((name, tensor.detach().clone()))
                break

        return hook

    for name, module in model.named_modules():
        module.register_forward_hook(keep(name))
    sow(SEED)
    bench.run(model, piece, peel)
    return found
