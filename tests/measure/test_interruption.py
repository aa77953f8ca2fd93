"""Ctrl-C and kill -9 at any moment: a readable profile, no orphan, and --resume repeats nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bsprof.records import PointStatus
from bsprof.store import load

SLOW_MODEL = """
import time
import torch
from bsprof import Workload

def make():
    def loss(model, batch):
        time.sleep(0.2)
        return model(batch).square().mean()
    return Workload(
        model=lambda: torch.nn.Linear(8, 8),
        batch=lambda size, device: torch.randn(size, 8, device=device),
        loss=loss,
    )
"""
SIZES = "1,2,3,4,5,6,7,8"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model.py").write_text(SLOW_MODEL)
    return tmp_path


def start(folder, *more):
    command = [sys.executable, "-m", "bsprof", "sweep", "--model", "model.py:make", "--device"]
    command += ["cpu", "--micro-batch-sizes", SIZES, "-o", "profile.json", *more]
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "BSPROF_STORE": str(folder / "store")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_points(folder, count, seconds=120):
    path = folder / "profile.json"
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.exists() and len(load(path).points) >= count:
            return load(path)
        time.sleep(0.05)
    raise AssertionError(f"no {count} points after {seconds} s")


def workers():
    """Processes of this machine that run a worker, by the command line of the module."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"bsprof.measure.worker" in words:
            found.add(int(path.parent.name))
    return found


def assert_gone(processes, seconds=15):
    end = time.monotonic() + seconds
    while processes & workers() and time.monotonic() < end:
        time.sleep(0.1)
    assert not processes & workers()


def workers_of(parent):
    found = set()
    for pid in workers():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[1]) == parent:
            found.add(pid)
    return found


@pytest.mark.slow
def test_ctrl_c_keeps_the_points_and_resume_repeats_nothing(folder):
    process = start(folder)
    wait_for_points(folder, 2)
    mine = workers_of(process.pid)
    assert mine
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "profile.json" in errors
    assert "--resume" in errors
    assert_gone(mine)
    partial = load(folder / "profile.json")
    assert not partial.complete
    kept = {p.micro_batch_size: p for p in partial.points}

    again = start(folder, "--resume")
    _, errors = again.communicate(timeout=300)
    assert again.returncode == 0, errors
    whole = load(folder / "profile.json")
    assert whole.complete
    assert [p.micro_batch_size for p in whole.points] == [1, 2, 3, 4, 5, 6, 7, 8]
    for size, point in kept.items():
        assert whole.point(size).timing.clocked_samples_s == point.timing.clocked_samples_s


@pytest.mark.slow
def test_kill_of_the_parent_leaves_a_readable_profile_and_no_orphan(folder):
    process = start(folder)
    wait_for_points(folder, 1)
    mine = workers_of(process.pid)
    assert mine
    process.kill()
    process.communicate(timeout=60)  # ends only when no orphan holds its pipes
    assert_gone(mine)
    assert load(folder / "profile.json").points[0].status is PointStatus.OK


@pytest.mark.slow
def test_kill_of_the_worker_costs_one_size(folder):
    process = start(folder)
    wait_for_points(folder, 2)
    busy = max(workers_of(process.pid), key=_cpu_ticks)
    os.kill(busy, signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    profile = load(folder / "profile.json")
    statuses = [p.status for p in profile.points]
    assert statuses.count(PointStatus.KILLED) == 1
    assert profile.complete


@pytest.mark.slow
def test_resume_refuses_an_edited_script(folder):
    process = start(folder)
    wait_for_points(folder, 1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    (folder / "model.py").write_text(SLOW_MODEL.replace("Linear(8, 8)", "Linear(8, 9)"))
    again = start(folder, "--resume")
    _, errors = again.communicate(timeout=300)
    assert again.returncode != 0
    assert "cannot resume" in errors
    assert len(load(folder / "profile.json").points) >= 1


def _cpu_ticks(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
