"""`--lora`, `--freeze` and `--ema` through the whole program, with real workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PARAMETERS = 3_448_320  # of gpt-tiny at its own sequence length
QKV = 256 + 3 * 256  # in + out of the projection that is adapted


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory, program: Callable[..., Any]) -> Any:
    """`sweep(*words)`: the document of a sweep of gpt-tiny; the device is probed once."""
    folder = tmp_path_factory.mktemp("parts")
    return lambda *words: program(folder, "gpt-tiny", *words)


def test_adapters(sweep: Any) -> None:
    document = sweep("--lora", "r=4")
    adapters = 4 * 4 * QKV
    assert document["workload"]["lora_rank"] == 4
    assert document["facts"]["trainable_parameter_count"] == adapters
    assert document["facts"]["parameter_count"] == PARAMETERS + adapters
    point = document["points"][1]
    assert point["peak_by_category_bytes"]["weights"] == 4 * (PARAMETERS + adapters)
    assert point["peak_by_category_bytes"]["optimizer_state"] == 2 * 4 * adapters + 4 * 8
    assert "lora-targets" in {note["code"] for note in document["notes"]}


def test_frozen_parts(sweep: Any) -> None:
    document = sweep("--freeze", "blocks.[012].*", "--freeze", "tokens.*")
    facts = document["facts"]
    assert facts["parameter_count"] == PARAMETERS
    block = 4 * 256 + (256 * 768 + 768) + (256 * 256 + 256) + 2 * (256 * 1024) + 1024 + 256
    assert facts["trainable_parameter_count"] == PARAMETERS - 3 * block - 1000 * 256
    assert "freeze-tied" in {note["code"] for note in document["notes"]}


def test_moving_average(sweep: Any) -> None:
    document = sweep("--ema")
    assert document["workload"]["ema"] is True
    for point in document["points"]:
        assert point["peak_by_category_bytes"]["weights"] == 2 * 4 * PARAMETERS
