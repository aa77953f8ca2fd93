"""Operators on images: batch and group normalisation, pooling, by layout, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from bsprof.calibrate.programs.program import Builder, Maker, Program, backward_of, forward

Layer = Callable[[Maker, Tensor], Tensor]


def _image(make: Maker, *, leaf: bool) -> Tensor:
    """Lengths: `batch`, `channels`, `side`, `last` (0)."""
    x = make.normal(make["batch"], make["channels"], make["side"], make["side"])
    if make.size("last", 0):
        x = x.to(memory_format=torch.channels_last)
    return x.requires_grad_() if leaf else x


def _max_pool(_make: Maker, x: Tensor) -> Tensor:
    return functional.max_pool2d(x, 3, 2, 1)


def _average_pool(_make: Maker, x: Tensor) -> Tensor:
    return functional.avg_pool2d(x, 2, 2)


def _pool_all(_make: Maker, x: Tensor) -> Tensor:
    return functional.adaptive_avg_pool2d(x, 1)


def _upsample(_make: Maker, x: Tensor) -> Tensor:
    return functional.interpolate(x, scale_factor=2.0, mode="nearest")


def _layers(layer: Layer) -> tuple[Builder, Builder]:
    """Forward and backward of a layer without weights."""

    def run(make: Maker) -> Program:
        x = _image(make, leaf=False)
        return forward(lambda: layer(make, x))

    def run_backward(make: Maker) -> Program:
        x = _image(make, leaf=True)
        return backward_of(layer(make, x), (x,))

    return run, run_backward


def _batch_norm(make: Maker, x: Tensor, weight: Tensor, bias: Tensor) -> Callable[[], Tensor]:
    width = make["channels"]
    mean = torch.zeros(width, device=make.device)
    variance = torch.ones(width, device=make.device)
    return lambda: functional.batch_norm(x, mean, variance, weight, bias, training=True)


def _group_norm(make: Maker, x: Tensor, weight: Tensor, bias: Tensor) -> Callable[[], Tensor]:
    return lambda: functional.group_norm(x, make["groups"], weight, bias)


Normalisation = Callable[[Maker, Tensor, Tensor, Tensor], Callable[[], Tensor]]


def _normalisations(layer: Normalisation) -> tuple[Builder, Builder]:
    """Forward and backward of a layer with a weight and a bias for each channel, in fp32."""

    def affine(make: Maker) -> tuple[Tensor, Tensor]:
        width = make["channels"]
        return torch.ones(width, device=make.device), torch.zeros(width, device=make.device)

    def run(make: Maker) -> Program:
        return forward(layer(make, _image(make, leaf=False), *affine(make)))

    def run_backward(make: Maker) -> Program:
        weight, bias = (t.requires_grad_() for t in affine(make))
        x = _image(make, leaf=True)
        return backward_of(layer(make, x, weight, bias)(), (x, weight, bias))

    return run, run_backward


def _named() -> Mapping[str, Builder]:
    pairs = {
        "max_pool": _layers(_max_pool),
        "average_pool": _layers(_average_pool),
        "pool_all": _layers(_pool_all),
        "upsample": _layers(_upsample),
        "batch_norm": _normalisations(_batch_norm),
        "group_norm": _normalisations(_group_norm),
    }
    found = {f"image.{name}": pair[0] for name, pair in pairs.items()}
    return found | {f"image.{name}_backward": pair[1] for name, pair in pairs.items()}


PROGRAMS: Mapping[str, Builder] = _named()
