"""Predicted against measured times on this machine's processor: `calibrate`, then sweeps.

    python predicted.py [FAMILY...] [--calibration FOLDER] [--rounds 1] [--seconds 60]

Calibrates the processor (or takes a folder that was calibrated before), then measures each family
at five sizes and predicts the same, family by family, in one run. Printed are ratios of predicted
to measured time of a micro-step, of an optimizer step and of an update, the error of updates, the
share of them inside the predicted interval, and how far the size that is predicted best lies below
the one that is measured best. `pace` is the machine's speed during a family's measurement over that
during calibration, by a fixed matrix product: what no calibration could know.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FAMILIES = {
    "mlp": ([], (16, 64, 256, 1024, 4096)),
    "convnet": ([], (4, 8, 16, 32, 64)),
    "gpt-tiny": ([], (1, 2, 4, 8, 16)),
    "encoder-tiny": ([], (1, 2, 4, 8, 16)),
    "vit-tiny": ([], (4, 8, 16, 32, 64)),
    "resnet18": (["--image-size", "64"], (2, 4, 8, 16, 32)),
}
"""Options of the sweep, and its sizes."""


def bsprof(environment: dict[str, str], *words: str) -> dict:
    command = [sys.executable, "-m", "bsprof", *words, "--json", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stderr}")
    return json.loads(done.stdout)


def seconds(point: dict, name: str) -> float:
    return point[name]["value"] if point[name] else 0.0


def pace(profile: dict) -> float:
    return statistics.median(s for p in profile["points"] for s in p["timing"]["pace_samples_s"])


def compared(family: str, environment: dict[str, str], pace_s: float | None) -> dict:
    """One family: its ratios, and what the predicted best size loses."""
    options, sizes = FAMILIES[family]
    asked = ["--model", family, *options, "--device", "cpu"]
    asked += ["--micro-batch-sizes", ",".join(map(str, sizes))]
    measured = bsprof(environment, "sweep", *asked)
    predicted = bsprof(environment, "sweep", *asked, "--predict")
    drift = pace(measured) / pace_s if pace_s else math.nan
    rows, rates = [], {}
    for b, true, guess in zip(sizes, measured["points"], predicted["points"], strict=True):
        both = [
            [seconds(p, n) for p in (true, guess)] for n in ("micro_step_s", "optimizer_step_s")
        ]
        update = b / true["samples_per_s"]["value"], b / guess["samples_per_s"]["value"]
        rates[b] = true["samples_per_s"]["value"], guess["samples_per_s"]["value"]
        interval = guess["samples_per_s"]
        inside = interval["low"] <= rates[b][0] <= interval["high"]
        width = (interval["high"] - interval["low"]) / interval["value"]
        (micro, micro_guess), (step, step_guess) = both
        rows.append((update[1] / update[0], inside, width))
        print(
            f"{family:13s} {b:5d}  micro-step {1e3 * micro:8.2f} ms x {micro_guess / micro:.2f}   "
            f"optimizer {1e3 * step:6.2f} ms x {step_guess / step:.2f}   "
            f"update x {rows[-1][0]:.2f}, at equal pace x {rows[-1][0] * drift:.2f}"
            f"{'' if inside else '  outside its interval'}",
            flush=True,
        )
    best = max(rates, key=lambda b: rates[b][0])
    chosen = max(rates, key=lambda b: rates[b][1])
    loss = 1 - rates[chosen][0] / rates[best][0]
    print(
        f"{family:13s} pace {drift:.2f}; best measured {best}, predicted {chosen}: "
        f"{100 * loss:.1f} % slower",
        flush=True,
    )
    return {"rows": rows, "loss": loss, "drift": drift}


def told(name: str, errors: list[float]) -> str:
    ordered = sorted(errors)
    ninth = ordered[math.ceil(0.9 * len(ordered)) - 1]
    return f"{name}: median {100 * statistics.median(ordered):.1f} %, 90th {100 * ninth:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--calibration", type=Path, help="an already calibrated folder")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "BSPROF_STORE": f"{folder}/profiles",
            "BSPROF_CALIBRATION": str(options.calibration or f"{folder}/calibration"),
        }
        for number in range(options.rounds):
            pace_s = None
            if options.calibration is None:
                began = time.monotonic()
                document = bsprof(
                    environment,
                    "calibrate",
                    "--device",
                    "cpu",
                    "--time-budget",
                    f"{options.seconds}s",
                )
                pace_s = document["usual_pace_s"]
                print(
                    f"round {number + 1}: calibrated {document['calibration']['device']} in "
                    f"{time.monotonic() - began:.0f} s, {document['benchmarks']} benchmarks, "
                    f"{len(document['skipped'])} left out",
                    flush=True,
                )
            found += [compared(family, environment, pace_s) for family in options.families]
    rows = [row for family in found for row in family["rows"]]
    ratios = [ratio for ratio, _inside, _width in rows]
    print(told("|predicted / measured - 1| of updates", [abs(r - 1) for r in ratios]))
    if all(not math.isnan(f["drift"]) for f in found):
        level = [abs(row[0] * f["drift"] - 1) for f in found for row in f["rows"]]
        print(told("the same at equal pace", level))
    print(f"median ratio {statistics.median(ratios):.2f}")
    print(
        f"inside the 90 % interval: {sum(i for _r, i, _w in rows)} of {len(rows)}, "
        f"its median width {100 * statistics.median(w for _r, _i, w in rows):.0f} %"
    )
    print(f"predicted best size: at most {100 * max(f['loss'] for f in found):.1f} % slower")


if __name__ == "__main__":
    main()
