"""The real bitsandbytes, which steps on the CPU too."""

from __future__ import annotations

from typing import Any

import pytest

from bsprof.records import Category, WorkloadSpec
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import build_training

pytest.importorskip("bitsandbytes")
pytestmark = pytest.mark.slow

SMALLEST = 4096
"""Elements from which bitsandbytes keeps 8 bits for each; below it keeps 32."""
BLOCK = 256
"""Elements that share a scale in fp32."""
MAP = 4 * 256
"""Bytes of the table of values, one for each moment, that all parameters share."""


@pytest.mark.parametrize(
    ("name", "moments", "options"),
    [
        ("adamw8bit", 2, {}),
        ("adam8bit", 2, {}),
        ("lion8bit", 1, {}),
        ("sgd8bit", 1, {"lr": 0.1, "momentum": 0.9}),
    ],
)
def test_state_takes_a_byte_for_each_moment(
    name: str, moments: int, options: dict[str, Any]
) -> None:
    spec = WorkloadSpec(model="mlp", optimizer=name, optimizer_options=options)
    training = build_training(spec, resolve(spec), "cpu")
    assert not training.optimizer_state_exists()
    before = [p.detach().clone() for p in training.model.parameters()]
    training.micro_step(training.make_batch(4), 1.0)
    assert training.optimizer_step()
    assert training.optimizer_state_exists()
    assert any((p != b).any() for p, b in zip(training.model.parameters(), before, strict=True))
    sizes = [p.numel() for p in training.model.parameters()]
    large = [n for n in sizes if n >= SMALLEST]
    small = sum(n for n in sizes if n < SMALLEST)
    scales = sum(-(-n // BLOCK) for n in large)
    expected = moments * (sum(large) + 4 * scales + 4 * small)
    resident = training.resident_bytes()[Category.OPTIMIZER_STATE]
    assert expected <= resident <= expected + moments * MAP * len(large)
    assert training.facts.optimizer is not None
    assert training.facts.optimizer.lower() == name
