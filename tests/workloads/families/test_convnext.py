from __future__ import annotations

import pytest
import torch

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.families.convnext import Block, ChannelNorm, ConvNeXt
from bsprof.workloads.families.stochastic_depth import StochasticDepth
from bsprof.workloads.resolve import resolve


def test_channel_norm_normalises_every_pixel() -> None:
    torch.manual_seed(0)
    y = ChannelNorm(16)(3 + 2 * torch.randn(2, 16, 4, 5))
    assert y.shape == (2, 16, 4, 5)
    torch.testing.assert_close(y.mean(dim=1), torch.zeros(2, 4, 5), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.var(dim=1, correction=0), torch.ones(2, 4, 5), atol=1e-3, rtol=0)


def test_layer_scale_starts_a_block_as_nearly_nothing() -> None:
    block = Block(8, 0.0)
    x = torch.randn(2, 8, 6, 6)
    torch.testing.assert_close(block(x), x, atol=1e-4, rtol=0)
    torch.nn.init.ones_(block.layer_scale)
    assert (block(x) - x).abs().max() > 1e-2


def test_stochastic_depth_rises_over_all_stages() -> None:
    with torch.device("meta"):
        model = resolve(WorkloadSpec(model="convnext-tiny")).model()
    assert isinstance(model, ConvNeXt)
    rates = [module.rate for module in model.modules() if isinstance(module, StochasticDepth)]
    assert rates == pytest.approx([0.1 * n / 17 for n in range(18)])


def test_widths_must_be_as_many_as_depths() -> None:
    with pytest.raises(UsageError, match="convnext-tiny needs as many widths as depths"):
        resolve(WorkloadSpec(model="convnext-tiny", model_options={"widths": "8,16"}))
