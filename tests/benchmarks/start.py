"""Start-up: `bsprof --help` against an empty Typer program; `recommend` on a stored profile."""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from search import environment

EMPTY = "import typer\napp = typer.Typer()\n@app.command()\ndef f(): pass\napp()"


def seconds(command):
    started = time.perf_counter()
    subprocess.run(command, env=environment(), capture_output=True, check=True)
    return time.perf_counter() - started


def cpu_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment(), capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(profile):
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty.py")
        empty.write_text(EMPTY)
        pairs = [
            (
                seconds([sys.executable, "-m", "bsprof", "--help"]),
                seconds([sys.executable, os.fspath(empty), "--help"]),
            )
            for _ in range(11)
        ]
    ratio = statistics.median(a / b for a, b in pairs)
    print(
        f"--help: {statistics.median(a for a, _ in pairs):.3f} s, empty Typer program "
        f"{statistics.median(b for _, b in pairs):.3f} s, ratio {ratio:.2f}"
    )
    ask = [
        sys.executable,
        "-m",
        "bsprof",
        "recommend",
        "--target-batch",
        "2048",
        "--profile",
        profile,
    ]
    taken = statistics.median(cpu_seconds(ask) for _ in range(5))
    print(f"recommend on a stored profile: {taken:.2f} s of CPU time")


if __name__ == "__main__":
    main(sys.argv[1])
