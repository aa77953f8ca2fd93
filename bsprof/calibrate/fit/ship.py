"""The calibration that travels with bsprof: kernels, spreads, whole steps, four digits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from bsprof.calibrate.fit.folder import fit_measurements
from bsprof.calibrate.fit.measurements import read_measurements
from bsprof.calibrate.fit.rounding import rounded
from bsprof.calibrate.fit.spreads import with_spreads
from bsprof.calibrate.fit.steps import Step, fit_steps
from bsprof.records.calibration import Calibration, InputFile

KERNELS_NOTE = (
    "fitted to public measurements of single kernels; `calibration_data/README.md` says how"
)
STEPS_NOTE = (
    "convolutions, their layout copies and batch norm in half precision on Ampere and later are "
    "adjusted to whole training steps of one device, since nobody published such kernels"
)


def shippable(
    folder: Path, steps: Sequence[Step] = (), files: Sequence[InputFile] = ()
) -> Calibration:
    """A calibration from a folder of kernel measurements, and from whole steps if there are any.

    It takes some minutes: every device and every family of devices is left out once.

    Args:
        folder: With the files that `read_measurements` knows.
        steps: Measured steps, see `fit_steps`.
        files: Where the steps come from.

    Raises:
        CalibrationError: a file of the folder is missing or cannot be read.
    """
    measurements = read_measurements(folder)
    found = with_spreads(measurements, fit_measurements(measurements))
    notes = [KERNELS_NOTE]
    if steps:
        found = fit_steps(steps, found)
        notes.append(STEPS_NOTE)
    found = dataclasses.replace(found, files=(*found.files, *files), notes=tuple(notes))
    return rounded(found)
