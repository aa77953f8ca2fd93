"""The predicted profiles that travel with bsprof are what it predicts today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bsprof.records import Origin
from bsprof.store import load

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "profiles" / "reference" / "predicted"


def test_every_file_has_times_for_all_sizes_that_fit():
    files = sorted(FOLDER.rglob("*.json"))
    assert len(files) == 12
    for file in files:
        profile = load(file)
        assert profile.origin is Origin.PREDICTED
        assert all(p.micro_step_s is not None for p in profile.ok_points())


@pytest.mark.slow
def test_they_are_what_is_predicted_now():
    torch = pytest.importorskip("torch")
    if not torch.__version__.startswith("2.13"):
        pytest.skip("made with torch 2.13")
    command = [sys.executable, str(ROOT / ".ci" / "reference"), "--check", "gpt2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
