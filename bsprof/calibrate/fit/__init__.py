"""Fits of the roofline's laws from measured kernels and steps."""

from bsprof.calibrate.fit.device import fit_device
from bsprof.calibrate.fit.folder import fit_folder
from bsprof.calibrate.fit.rows import KernelRow

__all__ = ["KernelRow", "fit_device", "fit_folder"]
