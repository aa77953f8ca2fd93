"""What a program is, and what makes its tensors: real ones to be timed, or fake ones to be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Call = Callable[[], object]
"""Runs the program once on tensors that exist already."""

SEED = 0


@dataclass(frozen=True, slots=True)
class Program:
    """A program, ready to run.

    Attributes:
        call: Runs it once.
        backward: Whether `call` enters the autograd engine, whose own time is then taken off.
    """

    call: Call
    backward: bool = False


class Maker:
    """Makes the tensors of one benchmark.

    Args:
        device: Where, as torch names it.
        dtype: Of floating tensors.
        sizes: Lengths by name.
    """

    def __init__(self, device: str, dtype: torch.dtype, sizes: dict[str, int]) -> None:
        self.device = device
        self.dtype = dtype
        self._sizes = sizes

    def __getitem__(self, name: str) -> int:
        """A length of the benchmark's shape."""
        return self._sizes[name]

    def size(self, name: str, default: int) -> int:
        """A length that a shape may leave out."""
        return self._sizes.get(name, default)

    def normal(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Random numbers: with zeros a device draws less power and runs faster than real work."""
        return torch.randn(shape, device=self.device, dtype=dtype or self.dtype)

    def leaf(self, *shape: int) -> Tensor:
        """The same, with gradients."""
        return self.normal(*shape).requires_grad_()

    def indices(self, high: int, *shape: int) -> Tensor:
        """Random whole numbers from 0 to below `high`."""
        return torch.randint(high, shape, device=self.device)


Builder = Callable[[Maker], Program]
"""Makes a program; nothing of it is timed."""


def forward(call: Call) -> Program:
    """A program without the autograd engine."""
    return Program(call)


def backward_of(output: Tensor, inputs: Sequence[Tensor]) -> Program:
    """The gradients of inputs for a random gradient of the output, again and again."""
    gradient = torch.randn_like(output)

    def call() -> Any:
        return torch.autograd.grad(output, inputs, gradient, retain_graph=True)

    return Program(call, backward=True)
