"""Coefficients that have not seen a device: what a prediction of it is worth without it."""

from __future__ import annotations

from pathlib import Path

from bsprof.records.calibration import Calibration


def calibration_without(folder: Path, device: str) -> Calibration:
    """Coefficients fitted without the kernels and the maxima of one device.

    Args:
        folder: Of the measurements.
        device: Name in the catalogue.
    """
    from bsprof.calibrate.fit import fit_folder

    return fit_folder(folder, leave_out=(device,))
