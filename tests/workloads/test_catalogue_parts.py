"""Checkpointing by block and adapters, for every model of the catalogue; nothing is allocated."""

from __future__ import annotations

import pytest
import torch

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.catalogue.entries import entries
from bsprof.workloads.checkpointing import find_blocks, repeated_blocks
from bsprof.workloads.lora import apply_lora
from bsprof.workloads.resolve import resolve

pytestmark = pytest.mark.slow

WITHOUT_ATTENTION = {"convnext", "efficientnet", "lstm", "ncf", "resnet", "unet"}


@pytest.mark.parametrize("name", entries())
def test_each_model_has_blocks_and_adapters_where_it_has_attention(name: str) -> None:
    workload = resolve(WorkloadSpec(model=name))
    with torch.device("meta"):
        model = workload.model()
    blocks = list(find_blocks(model, workload))
    assert len({id(block) for block in blocks}) == len(blocks) > 1
    assert {id(m) for m in model.modules()} >= {id(block) for block in blocks}
    assert repeated_blocks(model)
    if entries()[name].family in WITHOUT_ATTENTION:
        with pytest.raises(UsageError, match="found no query or value projections"):
            apply_lora(model, 4, ())
        return
    apply_lora(model, 4, ())
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained
    assert all(name.endswith((".lora_a", ".lora_b")) for name in trained)
