"""Coefficients without a device: which folder and which steps they are fitted on."""

from __future__ import annotations

import pytest

from bsprof.calibrate import fit
from bsprof.calibrate.fit import steps as step_fits
from bsprof.validate.time import folds


@pytest.fixture
def asked(monkeypatch, calibration):
    """What the fits are asked for."""
    seen = {}

    def fit_folder(folder, leave_out):
        seen["folder"], seen["left_out"] = folder, leave_out
        return calibration

    def fit_steps(rows, base):
        seen["steps"] = rows
        return base

    monkeypatch.setattr(fit, "fit_folder", fit_folder)
    monkeypatch.setattr(step_fits, "fit_steps", fit_steps)
    monkeypatch.setattr(folds, "step_rows", lambda *_args: ["a step"])
    return seen


def test_a_device_is_left_out_of_the_kernels_and_the_steps_of_another_stay(
    tmp_path, asked, calibration
):
    (tmp_path / "kernels").mkdir()
    assert folds.calibration_without(tmp_path, "rtx-4090", tmp_path) is calibration
    assert asked["folder"] == tmp_path / "kernels"
    assert asked["left_out"] == ("rtx-4090",)
    assert asked["steps"] == ["a step"]


def test_the_device_of_the_steps_is_left_out_with_them(tmp_path, asked):
    folds.calibration_without(tmp_path, "rtx-3090", tmp_path)
    assert asked["folder"] == tmp_path
    assert "steps" not in asked
