"""What people get wrong in their files, and what the real program then says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow

SCRIPT = """import torch
import torch.nn.functional as F
from torch import nn
from bsprof import Workload

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        return self.layer(x)

class Masked(Net):
    def forward(self, x, mask):
        return self.layer(x) * mask

def batch(size, device):
    return torch.randn(size, 8, device=device), torch.randint(4, (size,), device=device)

def loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])

def make():
    return Workload(model=Net, batch=batch, loss=loss)
"""
WHOLE = "Workload(model=Net, batch=batch, loss=loss)"
LOSS = "F.cross_entropy(model(batch[0]), batch[1])"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("model(batch[0])", "mode1(batch[0])", ["theirs.py:22", "name 'mode1' is not defined"]),
        ("nn.Linear(8, 4)", "nn.Linear1(8, 4)", ["theirs.py:9", "no attribute 'Linear1'"]),
        ("import torch\n", "import torhc\n", ["theirs.py:1", "install 'torhc'"]),
        ("def loss(model, batch)", "def loss(batch)", ["theirs.py:21", "loss(model, batch)"]),
        ("def make()", "def make(config)", ["theirs.py:make", "it needs config"]),
        (
            "torch.randn(size, 8, device=device)",
            "torch.randn(size, 8, device='meta')",
            ["returned a tensor on meta, not on cpu", "the device that batch() is given"],
        ),
        ("model=Net", "model=Masked", ["theirs.py:22", "missing 1 required", "'mask'"]),
        (
            WHOLE,
            "Workload.from_batches(Net, [(torch.ones(n), 1) for n in range(9)], loss=loss)",
            ["cannot make a batch of 2 samples", "stack expects each tensor", "pad them"],
        ),
        (
            LOSS,
            "{'loss': " + LOSS + ", 'accuracy': 0.5}",
            ["a dict with keys loss, accuracy", "output['loss']"],
        ),
        (
            "randn(size, 8,",
            "randn(size, 9,",
            ["theirs.py:12", "mat1 and mat2 shapes cannot be multiplied (2x9 and 8x4)"],
        ),
    ],
    ids=[
        "name",
        "attribute",
        "import",
        "loss-signature",
        "factory-signature",
        "device",
        "mask",
        "lengths",
        "dict",
        "shape",
    ],
)
def test_a_mistake_gets_a_clear_answer(tmp_path: Path, old: str, new: str, told: list[str]) -> None:
    assert old in SCRIPT
    (tmp_path / "theirs.py").write_text(SCRIPT.replace(old, new, 1))
    command = [sys.executable, "-m", "bsprof", "sweep", "--model", "theirs.py:make"]
    done = subprocess.run(
        [*command, "--micro-batch-sizes", "2", "--device", "cpu", "--memory-limit", "4GiB"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr
    assert "next:" in done.stderr
    for words in told:
        assert words in done.stderr
