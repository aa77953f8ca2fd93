"""Running a model of a package for two micro-batch sizes, and writing configurations."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bsprof.records import Mode, WorkloadSpec
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training


@pytest.fixture(autouse=True)
def _packages_may_warn() -> Iterator[None]:
    """Installed packages warn about each other; only bsprof's own warnings are errors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("default", category=Warning)
        yield


def _train(spec: WorkloadSpec, sizes: tuple[int, ...] = (1, 2)) -> Training:
    training = build_training(spec, resolve(spec), "cpu")
    for size in sizes:
        batch = training.make_batch(size)
        assert training.observed_size(batch) == size
        training.micro_step(batch, 1.0)
        grads = [p.grad for p in training.model.parameters() if p.grad is not None]
        assert grads
        assert all(bool(torch.isfinite(grad).all()) for grad in grads)
        assert training.optimizer_step()
        training.zero_grad()
    return training


@pytest.fixture
def train() -> Callable[..., Training]:
    """`train(spec, sizes)`: forward, backward and step for each size, with finite gradients."""
    return _train


@pytest.fixture
def infer() -> Callable[..., Training]:
    """`infer(spec, size)`: the evaluation forward pass of one batch."""

    def run(spec: WorkloadSpec, size: int = 2) -> Training:
        spec = replace(spec, mode=Mode.INFER)
        training = build_training(spec, resolve(spec), "cpu")
        training.micro_step(training.make_batch(size), 1.0)
        return training

    return run


@pytest.fixture
def same_gradients() -> Callable[..., int]:
    """`same_gradients(spec, size)`: checkpointing changes no gradient; the number of blocks."""

    def check(spec: WorkloadSpec, size: int = 2) -> int:
        grads = []
        for checkpointing in ("none", "full"):
            asked = replace(spec, activation_checkpointing=checkpointing)
            training = build_training(asked, resolve(asked), "cpu")
            batch = training.make_batch(size)
            torch.manual_seed(5)
            training.micro_step(batch, 1.0)
            grads.append([p.grad for p in training.model.parameters()])
        recomputed = [m for m in training.model.modules() if "forward" in vars(m)]
        for plain, other in zip(*grads, strict=True):
            assert (plain is None) == (other is None)
            if plain is not None and other is not None:
                assert torch.allclose(plain, other, rtol=1e-4, atol=1e-6)
        return len(recomputed)

    return check


@pytest.fixture
def config_file(tmp_path: Path) -> Callable[..., Path]:
    """`config_file(name, **fields)`: the folder of a config.json with these fields."""

    def write(name: str, **fields: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(fields))
        return folder

    return write
