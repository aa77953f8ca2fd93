"""Isolation: user files are imported and torch's switches are set in this very process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch


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
