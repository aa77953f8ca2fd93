"""Real processes under torchrun, gloo on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "ranks.py"
ROOT = Path(__file__).parents[2]


def run(kind: str, world_size: int) -> list[dict]:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={world_size}",
            str(SCRIPT),
            kind,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(
    "world_size",
    [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)],
)
def test_the_gradient_on_several_processes_is_that_of_the_whole_batch(world_size):
    *lines, more = run("ddp", world_size)
    assert {line["weigh"] for line in lines} == {"samples", "tokens"}
    assert any(len({n for rank in line["pieces"] for n in rank}) > 1 for line in lines)
    for line in lines:
        assert max(line["off"]) < 1e-12, line
    assert more["empty"] < 1e-12
    assert more["noise"] < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, 3])
def test_a_sharded_model_has_the_same_gradient(world_size):
    lines = run("fsdp", world_size)
    assert lines
    for line in lines:
        assert max(line["off"]) < 1e-12, line
