from __future__ import annotations

import pytest
import torch

from bsprof.workloads.families.stochastic_depth import StochasticDepth, rising_rates


def test_drops_whole_samples_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    x = torch.rand(4000, 3, 2) + 1
    y = StochasticDepth(0.25)(x)
    dropped = (y == 0).flatten(1)
    assert torch.equal(dropped.all(dim=1), dropped.any(dim=1))
    assert dropped[:, 0].float().mean() == pytest.approx(0.25, abs=0.03)
    kept = ~dropped[:, 0]
    torch.testing.assert_close(y[kept], x[kept] / 0.75)
    assert y.mean() == pytest.approx(float(x.mean()), rel=0.03)


@pytest.mark.parametrize("rate", [0.0, 0.9])
def test_changes_nothing_in_evaluation_or_at_rate_zero(rate: float) -> None:
    module = StochasticDepth(rate)
    if rate:
        module.eval()
    x = torch.randn(8, 3)
    assert module(x) is x


def test_a_dropped_sample_has_no_gradient() -> None:
    torch.manual_seed(0)
    x = torch.ones(64, 5, requires_grad=True)
    y = StochasticDepth(0.5)(x)
    y.sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert torch.equal(x.grad == 0, y == 0)
    assert set(y.detach().unique().tolist()) == {0.0, 2.0}


def test_keeps_the_type_of_its_input() -> None:
    assert StochasticDepth(0.5)(torch.ones(4, 2, dtype=torch.bfloat16)).dtype is torch.bfloat16


def test_rates_rise_from_zero_to_the_last() -> None:
    assert rising_rates(0.3, 4) == pytest.approx([0, 0.1, 0.2, 0.3])
    assert rising_rates(0.3, 1) == [0.0]
