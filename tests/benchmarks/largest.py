"""The largest size: bsprof's default interval and `--find-max` against the true one.

    python largest.py WORKLOAD [--limit 3] [--runs 3]

True is: the largest size at which fresh processes under the limit run three updates, found by
bisection, once for each run. Then the recommended plan runs 20 updates under the limit.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from search import HERE, environment, timed

TRY = """
import resource, sys
sys.path[:0] = [{root!r}, {here!r}]
import torch, reference
torch.set_num_threads(2)
resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))
workload = getattr(reference, {name!r})()
model = workload.model().train()
optimizer = torch.optim.AdamW(model.parameters())
for update in range({updates}):
    for _ in range({steps} if update else 1):
        workload.loss(model, workload.batch({size}, torch.device("cpu"))).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def runs(name, size, limit, updates=2, steps=2):
    code = TRY.format(
        root=str(HERE.parents[1]),
        here=str(HERE),
        limit=int(limit * 2**30),
        name=name,
        size=size,
        updates=updates,
        steps=steps,
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True)
    return done.returncode == 0


def true_largest(name, limit, low, high):
    while runs(name, high, limit):
        low, high = high, int(high * 1.1) + 1
    while not runs(name, low, limit):
        low, high = int(low * 0.9), low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if runs(name, middle, limit) else (low, middle)
    return low


def sweep(name, limit, store, *more):
    model = f"{HERE / 'reference.py'}:{name}"
    command = [
        sys.executable,
        "-m",
        "bsprof",
        "sweep",
        "--model",
        model,
        "--device",
        "cpu",
        "--memory-limit",
        f"{limit}GiB",
        "--json",
        "-q",
        *more,
    ]
    seconds, out = timed(command, env=environment(store))
    return seconds, json.loads(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload")
    parser.add_argument("--limit", type=float, default=3)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    name, limit = options.workload, options.limit
    store = Path(tempfile.mkdtemp())
    try:
        _, profile = sweep(name, limit, store)
        predicted = profile["max_micro_batch_size"]
        _, out = timed(
            [sys.executable, "-m", "bsprof", "recommend", "--target-batch", "2048", "--json", "-q"],
            env=environment(store),
        )
        plan = json.loads(out)["micro_batch_size"]
        seconds, bracketed = sweep(name, limit, store, "--find-max")
    finally:
        shutil.rmtree(store)
    found = bracketed["max_micro_batch_size"]
    started = time.perf_counter()
    true = [
        true_largest(name, limit, int(predicted["low"]), int(predicted["high"]) + 1)
        for _ in range(options.runs)
    ]
    print(f"true, {options.runs} bisections: {true} ({time.perf_counter() - started:.0f} s)")
    for what, size in (("default", predicted), ("--find-max", found)):
        inside = sum(size["low"] <= t <= size["high"] for t in true)
        width = (size["high"] - size["low"]) / size["value"]
        print(
            f"{what}: {size['value']:.0f} ({size['low']:.0f} to {size['high']:.0f}), width "
            f"{width:.1%}, holds {inside} of {len(true)}"
        )
    print(f"--find-max took {seconds:.1f} s")
    fine = runs(name, plan, limit, updates=20, steps=1)
    print(f"20 updates at the recommended {plan}: {'ran' if fine else 'FAILED'}")


if __name__ == "__main__":
    main()
