"""Rules that carry hyperparameters from one batch to another, against their definitions."""

import math

import pytest

from bsprof.recommend.advice.scaling import (
    adam_gain,
    least_warmup,
    same_half_life,
    same_horizon,
    scaled_betas,
    sgd_gain,
)


def test_sgd_is_linear_and_tends_to_it_where_noise_dominates():
    assert sgd_gain(8, 256, None) == 8
    assert sgd_gain(8, 256, 1e9) == pytest.approx(8, rel=1e-5)
    assert sgd_gain(8, 256, 1e-6) == pytest.approx(1, rel=1e-6)


def test_the_gain_is_adascales():
    current, kappa, noise = 64, 4, 500.0
    squared_norm = 1.0
    variance = noise / current  # tr(Sigma) / B0 with |G|^2 = 1
    wanted = (variance + squared_norm) / (variance / kappa + squared_norm)
    assert sgd_gain(kappa, current, noise) == pytest.approx(wanted)
    assert adam_gain(kappa, current, noise) == pytest.approx(math.sqrt(wanted))


def test_betas_are_clamped_where_the_rule_ends():
    betas = scaled_betas(0.9, 0.999, 4)
    assert betas.beta1 == pytest.approx(0.6)
    assert betas.beta2 == pytest.approx(0.996)
    assert not betas.clamped
    assert scaled_betas(0.9, 0.999, 9.9).clamped is False
    ended = scaled_betas(0.9, 0.999, 12)
    assert ended.clamped
    assert ended.beta1 == 0.0


def test_a_half_life_in_samples_is_kept():
    beta2, kappa = 0.95, 1 / 512
    half_life = math.log(0.5) / math.log(beta2)  # in updates
    new = same_half_life(beta2, kappa)
    assert math.log(0.5) / math.log(new) * kappa == pytest.approx(half_life)
    assert new == pytest.approx(0.9999, abs=1e-5)  # the figure of 2507.07101


@pytest.mark.parametrize(("beta2", "steps"), [(0.999, 2000), (0.95, 40), (0.99, 200)])
def test_least_warmup(beta2, steps):
    assert least_warmup(beta2) == steps


@pytest.mark.parametrize("pieces", [1, 2, 8, 64])
def test_the_horizon_of_running_statistics(pieces):
    weight_of_the_past = (1 - same_horizon(0.1, pieces)) ** pieces
    assert weight_of_the_past == pytest.approx(0.9)
