"""Gradients of a workload's loss on a fresh copy of its model, in double precision."""

from __future__ import annotations

import copy
import math
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bsprof.diagnose.equivalence.peeling import Peel, peeled
from bsprof.errors import WorkloadError
from bsprof.workloads.faults import user_code
from bsprof.workloads.workload import Workload

Gradient = dict[str, Tensor]
"""By name of the parameter; sparse ones made dense. A parameter without one is left out."""

SEED = 20


class Bench:
    """Makes gradients, each time from the same state: weights, buffers, attributes, seeds.

    Args:
        model: Never run itself, only copies of it.
        workload: Its loss, or its own micro-step.
        beat: Called before every pass.
    """

    def __init__(
        self, model: nn.Module, workload: Workload, beat: Callable[[], None] = lambda: None
    ) -> None:
        self._pristine = model
        self._workload = workload
        self._beat = beat
        self.saw_sparse: set[str] = set()

    @property
    def model(self) -> nn.Module:
        """As it was built; to be looked at only."""
        return self._pristine

    def fresh(self) -> nn.Module:
        """A copy of the model as it was built.

        Raises:
            WorkloadError: it cannot be copied.
        """
        with user_code("cannot copy the model, which a comparison of gradients needs"):
            return copy.deepcopy(self._pristine)

    def gradient(
        self,
        pieces: Sequence[Any],
        weights: Sequence[float] = (1.0,),
        *,
        peel: Peel | None = None,
        seed: int = SEED,
    ) -> Gradient:
        """Weighted sum over pieces that run one after the other on one copy, as training does."""
        model = self.fresh()
        sow(seed)
        total: Gradient = {}
        for piece, weight in zip(pieces, weights, strict=True):
            for name, gradient in self.run(model, piece, peel or Peel()).items():
                if name in total:
                    total[name].add_(gradient, alpha=weight)
                else:
                    total[name] = gradient * weight
        return total

    def run(self, model: nn.Module, piece: Any, peel: Peel) -> Gradient:
        """One pass on this very model; its gradients are taken away from it.

        Raises:
            WorkloadError: the loss raised, or has no gradient.
        """
        self._beat()
        with peeled(model, peel), user_code("the loss failed on a piece of the batch"):
            if self._workload.micro_step is not None:
                self._workload.micro_step(model, piece)
            else:
                loss = self._workload.loss(model, piece)
                if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
                    raise WorkloadError(
                        "the loss must be one number with a gradient, as a tensor",
                        next_step="return the mean over the batch from loss(model, batch)",
                    )
                loss.backward()  # type: ignore[no-untyped-call]
        return self._taken(model)

    def _taken(self, model: nn.Module) -> Gradient:
        found = {}
        for name, parameter in model.named_parameters():
            gradient, parameter.grad = parameter.grad, None
            if gradient is None:
                continue
            if gradient.layout != torch.strided:
                self.saw_sparse.add(name)
                gradient = gradient.to_dense()
            found[name] = gradient.detach()
        return found


def sow(seed: int) -> None:
    """Seed all generators that a user's code may draw from."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)


def norm(gradient: Gradient) -> float:
    """Of all parameters together."""
    return math.sqrt(sum(float(g.double().square().sum()) for g in gradient.values()))


def difference(found: Gradient, wanted: Gradient) -> float:
    """Norm of the difference over the norm of what was wanted."""
    below = max(norm(wanted), 1e-300)
    return norm(combined([found, wanted], (1.0, -1.0))) / below


def combined(gradients: Sequence[Gradient], weights: Sequence[float]) -> Gradient:
    """A weighted sum; what is missing in one counts as zero."""
    total: Gradient = {}
    for gradient, weight in zip(gradients, weights, strict=True):
        for name, value in gradient.items():
            total[name] = total[name] + weight * value if name in total else weight * value
    return total


def best_weights(gradients: Sequence[Gradient], wanted: Gradient) -> tuple[list[float], float]:
    """The weights whose sum of gradients comes nearest to what is wanted, and how near.

    Returns:
        Least-squares weights, and the relative difference that remains.
    """
    names = sorted(set(wanted).union(*gradients))
    columns = []
    for gradient in (*gradients, wanted):
        like = {name: gradient[name] for name in names if name in gradient}
        columns.append(like)
    size = len(gradients)
    gram = torch.zeros(size + 1, size + 1, dtype=torch.float64)
    for row in range(size + 1):
        for column in range(row + 1):
            dot = sum(
                float((columns[row][n].double() * columns[column][n].double()).sum())
                for n in columns[row].keys() & columns[column].keys()
            )
            gram[row, column] = gram[column, row] = dot
    solved = torch.linalg.lstsq(gram[:size, :size], gram[:size, size:], driver="gelsd").solution
    weights = [float(value) for value in solved.flatten()]
    return weights, difference(combined(gradients, weights), wanted)
