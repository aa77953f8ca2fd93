"""Coefficients that have not seen a device: what a prediction of it is worth without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bsprof.records.calibration import Calibration
from bsprof.validate.time.groups import Group
from bsprof.validate.time.sources import timm_training
from bsprof.validate.time.steps import step_rows

KERNELS = "kernels"
"""Folder of measured kernels within that of the measurements."""
MODELS = 150
"""Models of the whole steps that are fitted on, both halves counted: as for what is shipped."""


def calibration_without(
    folder: Path,
    device: str,
    cache: Path,
    on_group: Callable[[int, int, Group], None] = lambda _number, _count, _group: None,
) -> Calibration:
    """Coefficients fitted without the kernels, the maxima and the whole steps of one device.

    Args:
        folder: Of the measurements.
        device: Name in the catalogue.
        cache: Of kept traces; the whole steps are traced where it has them not.
        on_group: Called before each group of steps, with its number from 0 and how many there are.

    Raises:
        CalibrationError: the folder has not all files of kernels.
        UsageError: it has no whole steps.
    """
    from bsprof.calibrate.fit import fit_folder
    from bsprof.calibrate.fit.steps import fit_steps

    kernels = folder / KERNELS
    found = fit_folder(kernels if kernels.is_dir() else folder, leave_out=(device,))
    if device == timm_training.DEVICE:
        return found
    return fit_steps(step_rows(folder, cache, MODELS, on_group), found)
