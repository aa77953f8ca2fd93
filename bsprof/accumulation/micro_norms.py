"""Squares of every piece's own gradient, seen while it is added to the sum; no gradient is kept."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from bsprof.accumulation.weights import Weight


class MicroNorms:
    """Sums what `noise_parts` needs over the pieces of one update.

    A hook on each parameter sees the piece's gradient before it is accumulated, and before ranks
    average it. Parameters that FSDP2 shards have no such moment.

    Args:
        parameters: Those that are trained.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._squares: list[Tensor] = []
        self._handles: list[RemovableHandle] = [
            p.register_hook(self._see)  # type: ignore[no-untyped-call]
            for p in parameters
            if p.requires_grad
        ]
        self._sums: Tensor | None = None

    def add(self, *, weight: Weight, factor: float, scale: Tensor | None, samples: int) -> None:
        """After a piece's backward pass.

        Args:
            weight: What its loss was multiplied by.
            factor: The part of the weight that undoes an average over ranks.
            scale: That of a gradient scaler; None without one.
            samples: In the piece.
        """
        if not self._squares:
            return
        device = self._squares[0].device
        kind = torch.float32 if device.type == "mps" else torch.float64
        square = torch.stack([s.to(device) for s in self._squares]).to(kind).sum()
        self._squares.clear()
        share = torch.as_tensor(weight, dtype=kind, device=device) / factor
        by = share * factor if scale is None else share * factor * scale.to(kind)
        # Order: weighted square of the piece's mean gradient, w/n, w^2/n.
        parts = torch.stack([share * square / by**2, share / samples, share**2 / samples])
        self._sums = parts if self._sums is None else self._sums + parts

    def take(self) -> Tensor | None:
        """The sums (3,) of `local`, `per_piece` and `per_update` of this rank; then starts anew."""
        sums, self._sums = self._sums, None
        self._squares.clear()
        return sums

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _see(self, gradient: Tensor) -> None:
        values = gradient.coalesce().values() if gradient.is_sparse else gradient
        norm = torch.linalg.vector_norm(values.detach(), dtype=_wide(values.dtype))
        self._squares.append(norm.square())


def _wide(kind: torch.dtype) -> torch.dtype:
    return torch.float64 if kind == torch.float64 else torch.float32
