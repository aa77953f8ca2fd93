"""Robust least squares with priors."""

import numpy as np
import pytest

from bsprof.calibrate.fit.solver import solve


def line(x, y):
    """Residuals of a + b x."""
    jacobian = np.stack([np.ones_like(x), x], axis=1)
    return lambda place: (jacobian @ place - y, lambda: jacobian)


@pytest.fixture
def points():
    rng = np.random.default_rng(0)
    x = np.linspace(-1, 1, 60)
    return x, 0.7 + 0.4 * x + rng.normal(0, 0.03, 60)


def test_known_parameters_are_found(points):
    x, y = points
    found = solve(line(x, y), np.ones(60), np.zeros(2), np.full(2, 5.0))
    assert found.parameters == pytest.approx([0.7, 0.4], abs=0.03)
    assert found.residuals == pytest.approx(found.parameters[0] + found.parameters[1] * x - y)


def test_gross_errors_hardly_move_them(points):
    x, y = points
    y = y.copy()
    y[::10] += 3.0
    found = solve(line(x, y), np.ones(60), np.zeros(2), np.full(2, 5.0))
    assert found.parameters == pytest.approx([0.7, 0.4], abs=0.1)


def test_without_weight_the_prior_stays(points):
    x, y = points
    prior = np.array([0.1, -0.2])
    found = solve(line(x, y), np.zeros(60), prior, np.array([0.3, 0.5]))
    assert found.parameters == pytest.approx(prior, abs=1e-6)
    assert np.sqrt(np.diag(found.covariance)) == pytest.approx([0.3, 0.5])


def test_errors_shrink_with_data(points):
    x, y = points
    errors = [
        np.sqrt(np.diag(solve(line(x, y), np.full(60, w), np.zeros(2), np.ones(2)).covariance))
        for w in (0.1, 1.0)
    ]
    assert (errors[1] < errors[0]).all()


def test_a_curved_model_is_followed():
    x = np.linspace(0.1, 4, 50)

    def model(place):
        residuals = np.exp(place[0] * x) + place[1] - np.exp(0.5 * x) - 2.0
        slopes = np.stack([x * np.exp(place[0] * x), np.ones(50)], axis=1)
        return residuals, lambda: slopes

    found = solve(model, np.ones(50), np.zeros(2), np.full(2, 10.0), start=np.array([1.2, -3.0]))
    assert found.parameters == pytest.approx([0.5, 2.0], abs=0.01)
