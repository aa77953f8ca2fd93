from __future__ import annotations

import math
from typing import cast

import pytest
import torch
from torch import nn

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.catalogue.entries import entries
from bsprof.workloads.families.efficientnet import SqueezeExcitation
from bsprof.workloads.resolve import resolve


def to_step(width: float) -> int:
    """A multiple of 8: the nearest, or the next where that loses more than a tenth."""
    nearest = max(8, int(width + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * width else nearest + 8


# Width, depth and image size of each size, as the authors' code has them:
# https://github.com/tensorflow/tpu/blob/master/models/official/efficientnet/efficientnet_builder.py
@pytest.mark.parametrize(
    ("name", "width", "depth", "image_size", "dropout"),
    [
        ("efficientnet-b0", 1.0, 1.0, 224, 0.2),
        ("efficientnet-b1", 1.0, 1.1, 240, 0.2),
        ("efficientnet-b2", 1.1, 1.2, 260, 0.3),
        ("efficientnet-b3", 1.2, 1.4, 300, 0.3),
        ("efficientnet-b4", 1.4, 1.8, 380, 0.4),
    ],
)
def test_sizes_are_b0_scaled(
    name: str, width: float, depth: float, image_size: int, dropout: float
) -> None:
    smallest, scaled = entries()["efficientnet-b0"].config, entries()[name].config
    widths = cast(tuple[int, ...], smallest["widths"])
    depths = cast(tuple[int, ...], smallest["depths"])
    assert scaled["widths"] == tuple(to_step(width * each) for each in widths)
    assert scaled["depths"] == tuple(math.ceil(depth * each) for each in depths)
    assert (scaled["image_size"], scaled["dropout"]) == (image_size, dropout)


def test_squeeze_and_excitation_scales_whole_channels() -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 8, 4, 4) + 1
    shares = SqueezeExcitation(8, 2)(x) / x
    torch.testing.assert_close(shares, shares.mean(dim=(2, 3), keepdim=True).expand(2, 8, 4, 4))
    assert float(shares.min().detach()) > 0
    assert float(shares.max().detach()) < 1


def test_batch_norms_are_as_published() -> None:
    with torch.device("meta"):
        model = resolve(WorkloadSpec(model="efficientnet-b0")).model()
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(norms) == 49
    assert {(norm.eps, norm.momentum) for norm in norms} == {(1e-3, 0.01)}


def test_wrong_number_of_widths_is_refused() -> None:
    with pytest.raises(UsageError, match="efficientnet-b0 needs 9 numbers for the setting widths"):
        resolve(WorkloadSpec(model="efficientnet-b0", model_options={"widths": "8,8"}))
