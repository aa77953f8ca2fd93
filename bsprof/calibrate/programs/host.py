"""Programs whose tensors are so small that only the host's time shows."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bsprof.calibrate.programs.program import Builder, Maker, Program, backward_of, forward

WIDTH = 8
LENGTH = 4


class _Block(nn.Module):
    """A usual mix of layers and of operators between them, on (batch, LENGTH, WIDTH)."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, device=device)
        self.up = nn.Linear(WIDTH, 2 * WIDTH, device=device)
        self.act = nn.GELU()
        self.down = nn.Linear(2 * WIDTH, WIDTH, device=device)
        self.rectify = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Split into halves and joined again, a residual sum, a rectifier."""
        hidden = self.act(self.up(self.norm(x)))
        halves = hidden.view(*x.shape[:2], 2, WIDTH).transpose(1, 2).reshape(hidden.shape)
        result: Tensor = self.rectify(x + self.down(halves))
        return result


def _model(make: Maker) -> tuple[nn.Sequential, Tensor]:
    blocks = [_Block(make.device) for _ in range(make["blocks"])]
    return nn.Sequential(*blocks), torch.randn(2, LENGTH, WIDTH, device=make.device)


def modules(make: Maker) -> Program:
    """A forward pass of `blocks` blocks, with gradients recorded."""
    model, x = _model(make)
    return forward(lambda: model(x))


def modules_backward(make: Maker) -> Program:
    """Its backward pass."""
    model, x = _model(make)
    return backward_of(model(x), tuple(model.parameters()))


def operator(make: Maker) -> Program:
    """One call of the smallest operator there is."""
    x = torch.zeros(1, device=make.device)
    return forward(lambda: x.neg())


def engine(make: Maker) -> Program:
    """One entry into the autograd engine, with the smallest operator there is."""
    x = torch.ones(1, device=make.device, requires_grad=True)
    return backward_of(x.neg(), (x,))


PROGRAMS: Mapping[str, Builder] = {
    "host.forward": modules,
    "host.backward": modules_backward,
    "host.operator": operator,
    "host.engine": engine,
}
