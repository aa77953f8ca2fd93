"""bsprof's sweep and recommendation against the peers' searches and an exhaustive sweep.

    python search.py WORKLOAD [--tools bsprof,lightning-power,...] [--searches 5] [--limit 3]

Every search runs in a process of its own and is timed as a whole, import included. Then the three
best sizes of the exhaustive sweep (it leaves the usual headroom) and every tool's answer are
measured again in turn, each time in a fresh process that trains at that size alone; what each
costs is the update of TARGET samples at its size.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = 2048
# The convnet's limit ends it where throughput still rises: few sizes are near its best.
LIMITS_GIB = {"gpt": 3.0, "convnet": 0.5, "slowed": 3.0}
HEADROOM = 0.05  # what `recommend` leaves free
PEERS = ("lightning-power", "lightning-binsearch", "accelerate")


def timed(command, **options):
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True, **options)
    return time.perf_counter() - started, done.stdout


def environment(store=None):
    values = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"}
    if store is not None:
        values["BSPROF_STORE"] = str(store)
    return values


def peer(tool, workload, limit):
    seconds, out = timed(
        [sys.executable, str(HERE / "peers.py"), tool, workload, str(limit)], env=environment()
    )
    return seconds, json.loads(out.splitlines()[-1])["answer"]


def bsprof(workload, limit, store):
    model = f"{HERE / 'reference.py'}:{workload}"
    program = [sys.executable, "-m", "bsprof"]
    sweep = [
        *program,
        "sweep",
        "--model",
        model,
        "--memory-limit",
        f"{limit}GiB",
        "-q",
        "--device",
        "cpu",
    ]
    ask = [*program, "recommend", "--target-batch", str(TARGET), "--json", "-q"]
    sweeping, _ = timed(sweep, env=environment(store))
    asking, out = timed(ask, env=environment(store))
    return sweeping + asking, json.loads(out)["micro_batch_size"]


def median(numbers):
    return statistics.median(numbers)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=["gpt", "convnet", "slowed"])
    parser.add_argument("--tools", default=",".join(("bsprof", *PEERS)))
    parser.add_argument("--searches", type=int, default=5)
    parser.add_argument("--limit", type=float, help="GiB; default: the workload's own")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    limit = options.limit or LIMITS_GIB[options.workload]
    tools = options.tools.split(",")
    seconds, answers = {}, {}
    store = Path(tempfile.mkdtemp())
    try:
        first, answer = bsprof(options.workload, limit, store)
        print(f"bsprof, empty store: {first:.1f} s, answer {answer}", flush=True)
        for _ in range(options.searches):
            for tool in tools:
                if tool == "bsprof":
                    for old in store.rglob("2*.json"):
                        old.unlink()
                    took, answer = bsprof(options.workload, limit, store)
                else:
                    took, answer = peer(tool, options.workload, limit)
                seconds.setdefault(tool, []).append(took)
                answers.setdefault(tool, []).append(answer)
                print(f"  {tool}: {took:.1f} s, answer {answer}", flush=True)
    finally:
        shutil.rmtree(store)
    took, found = peer("exhaustive", options.workload, limit * (1 - HEADROOM))
    costs = {int(b): s / int(b) for b, s in found.items()}
    ranked = sorted(costs, key=costs.get)
    near = sum(c <= 1.03 * costs[ranked[0]] for c in costs.values())
    print(
        f"exhaustive: {took:.0f} s, {len(costs)} sizes up to {max(costs)}, best {ranked[:3]}, "
        f"{near} within 3 % of the best ({near / len(costs):.0%})"
    )
    # The exhaustive sweep keeps one process and ends earlier than a fresh one: what bsprof answers
    # is timed wherever it lies; peers' answers only where they leave the headroom too.
    mine_too = answers.get("bsprof", [])
    others = (a for got in answers.values() for a in got if a <= max(costs))
    sizes = sorted({*ranked[:3], 32, *mine_too, *others})
    update = {b: [] for b in sizes}
    for number in range(options.rounds):
        for b in sizes if number % 2 == 0 else reversed(sizes):
            _, took = peer(f"steady:{b}", options.workload, limit)
            update[b].append(TARGET / b * took["micro_step"] + took["optimizer_step"])
    # Round by round against the best size of the exhaustive sweep, so that drift cancels.
    best = min(ranked[:3], key=lambda b: median(update[b]))
    print(
        f"update of {TARGET}, {options.rounds} processes each, against the best exhaustive size "
        f"{best} ({median(update[best]):.1f} s):"
    )
    for b in sizes:
        ratios = [x / y for x, y in zip(update[b], update[best], strict=True)]
        who = [t for t, got in answers.items() if b in got] + (
            ["exhaustive"] if b in ranked[:3] else []
        )
        print(
            f"  micro-batch {b:4d}: {median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})  "
            f"{', '.join(who) or 'fixed'}"
        )
    mine = median(seconds["bsprof"]) if "bsprof" in seconds else None
    for tool, times in seconds.items():
        ratio = f", bsprof / it = {mine / median(times):.2f}" if mine and tool != "bsprof" else ""
        print(
            f"{tool}: median {median(times):.1f} s ({min(times):.1f} to {max(times):.1f}), "
            f"answers {sorted(answers[tool])}{ratio}"
        )


if __name__ == "__main__":
    main()
