"""Fits `calibration_data/roofline.json` anew from public measurements.

    python fit_roofline.py FOLDER [--models 150] [--cache FOLDER] [-o FILE]

FOLDER holds `kernels` and `end_to_end`. Kernels take some minutes, since every device and every
family is left out once; steps need traces of timm's models, a few seconds each, which are kept.
Without `--models` no steps are used, and the laws that they adjust stay what kernels make of them.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from pathlib import Path

from bsprof.calibrate.fit.ship import shippable
from bsprof.calibrate.fit.steps import STEP
from bsprof.hardware.calibration import save_calibration
from bsprof.records.calibration import InputFile
from bsprof.validate.time.steps import MeasuredStep, step_rows

ROOT = Path(__file__).resolve().parents[2]
STEPS_FILE = "timm_train_rtx3090.csv"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", type=int, default=0)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("-o", type=Path, default=ROOT / "calibration_data" / "roofline.json")
    given = parser.parse_args()
    steps: list[MeasuredStep] = []
    files: list[InputFile] = []
    if given.models:
        with tempfile.TemporaryDirectory() as folder:
            cache = given.cache or Path(folder)
            steps = step_rows(given.folder, cache, given.models)
        content = (given.folder / "end_to_end" / STEPS_FILE).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        files = [InputFile(name=STEPS_FILE, sha256=digest, rows=len(steps))]
    found = shippable(given.folder / "kernels", steps, files)
    save_calibration(given.o, found)
    print(f"wrote {given.o}")
    for left in found.residuals:
        if left.law == STEP:
            print(
                f"{left.device}, {left.rows} steps: median {left.median:.3f}, p90 {left.p90:.3f}; "
                f"models left out {left.left_out_median:.3f}, {left.left_out_p90:.3f}"
            )


if __name__ == "__main__":
    main()
