"""Isolation: user files are imported and torch's switches are set in this very process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import bsprof


@pytest.fixture(autouse=True)
def _process_state() -> Iterator[None]:
    """Put back what loading user code and building a training change in the process."""
    path, modules = list(sys.path), set(sys.modules)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        # Only modules of test folders: torch's own, imported lazily, must stay.
        if "pytest-of" in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def user_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a user's Python file into a folder of its own."""

    def write(text: str, name: str = "their_job.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="session")
def program() -> Callable[..., Any]:
    """`program(folder, model, *words)`: the document of a real sweep of the sizes 1 and 2."""

    def run(folder: Path, model: str, *words: str) -> Any:
        sizes = ("--micro-batch-sizes", "1,2", "--memory-limit", "4GiB", "--device", "cpu")
        command = [sys.executable, "-m", "bsprof", "sweep", "--model", model, *sizes, *words]
        done = subprocess.run(
            [*command, "--json"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(bsprof.__file__).parent.parent)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert [point["status"] for point in document["points"]] == ["ok", "ok"]
        return document

    return run
