"""The main job with real workers, as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bsprof.store import load

ROOT = Path(__file__).parent.parent.parent
SCRIPT = """
import torch
from bsprof import Workload

def make():
    return Workload(
        model=lambda: torch.nn.Linear(16, 4),
        batch=lambda size, device: (torch.randn(size, 16), torch.randint(4, (size,))),
        loss=lambda model, batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1]),
    )
"""

pytestmark = pytest.mark.slow


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bsprof", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(folder: Path, *words: str) -> tuple[int, str, str]:
    with start(folder, *words) as process:
        out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def test_sweep_recommend_report(script):
    words = ("--micro-batch-sizes", "1,2,4", "--memory-limit", "2GiB", "--device", "cpu")
    status, out, err = finish(script, "sweep", "--model", "train.py:make", *words, "--json")
    assert status == 0, err
    document = json.loads(out)
    assert [point["micro_batch_size"] for point in document["points"]] == [1, 2, 4]
    assert document["complete"] is True
    assert [line for line in err.splitlines() if line.startswith("wrote profiles/")]
    status, out, err = finish(script, "recommend", "--target-batch", "10", "--json")
    assert status == 0, err
    assert sum(sum(pieces) for pieces in json.loads(out)["pieces_by_rank"]) == 10
    status, out, err = finish(script, "report", "--target-batch", "10", "-o", "report.html")
    assert (status, out) == (0, ""), err
    assert "<svg" in (script / "report.html").read_text()


def interrupt_after_first_point(folder: Path, *words: str) -> tuple[int, str]:
    with start(folder, *words) as process:
        assert process.stderr is not None
        seen = ""
        for line in process.stderr:
            seen += line
            if line.startswith("micro-batch"):
                process.send_signal(signal.SIGINT)
                break
        _, rest = process.communicate(timeout=120)
    return process.returncode, seen + rest


def test_interrupt_resume_and_refuse(script):
    words = ("sweep", "--model", "train.py:make", "--memory-limit", "2GiB", "-o", "p.json")
    sizes = ("--micro-batch-sizes", "1,2,4,8")
    status, err = interrupt_after_first_point(script, *words, *sizes)
    assert status == 130, err
    assert "interrupted; finished points are kept in p.json" in err
    assert "Traceback" not in err
    partial = load(script / "p.json")
    assert not partial.complete
    assert partial.points

    original = (script / "train.py").read_text()
    (script / "train.py").write_text(original.replace("Linear(16, 4)", "Linear(16, 5)"))
    kept = (script / "p.json").read_bytes()
    status, _, err = finish(script, *words, *sizes, "--resume")
    assert status != 0
    assert "cannot resume" in err
    assert (script / "p.json").read_bytes() == kept

    (script / "train.py").write_text(original)
    status, _, err = finish(script, *words, *sizes, "--resume")
    assert status == 0, err
    whole = load(script / "p.json")
    assert whole.complete
    assert whole.created_at == partial.created_at
    assert [p.micro_batch_size for p in whole.points] == [1, 2, 4, 8]
    # Measured once: the clock's own samples are those of before, whatever pace they are told at.
    first = partial.points[0]
    again = whole.point(first.micro_batch_size)
    assert again.timing.clocked_samples_s == first.timing.clocked_samples_s


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("return Workload(", "raise ValueError('planted')\n    return Workload(", "planted"),
        ("torch.randn(size, 16)", "torch.randn(size + 1, 16)", "size"),
        ("def make", "def other", "make"),
        ("import torch", "import torchh", "torchh"),
    ],
)
def test_what_is_wrong_with_the_script_is_shown(script, old, new, text):
    (script / "train.py").write_text(SCRIPT.replace(old, new, 1))
    status, out, err = finish(script, "sweep", "--model", "train.py:make", "--device", "cpu")
    assert (status, out) == (3, "")
    assert err.startswith(("error: ", "train.py"))
    assert text in err
    assert "train.py" in err
    assert "Traceback" not in err
