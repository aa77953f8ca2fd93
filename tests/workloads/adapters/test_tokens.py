from __future__ import annotations

from typing import Any

import pytest
import torch

from bsprof.workloads.adapters.tokens import batch_tokens, loss_tokens

IDS = torch.tensor([[1, 2, 3], [4, 5, 0]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])
LABELS = torch.tensor([[1, -100, 3], [-100, 5, -100]])


@pytest.mark.parametrize(
    ("batch", "in_loss", "in_batch"),
    [
        ({"input_ids": IDS, "attention_mask": MASK, "labels": LABELS}, 3, 5),
        ({"input_ids": IDS, "labels": torch.tensor([0, 1])}, 6, 6),  # a class for each sample
        ({"input_ids": IDS, "attention_mask": MASK}, 5, 5),
        ({"input_features": torch.zeros(2, 80, 10), "labels": LABELS}, 3, 0),
        # Who attends to whom, a segmentation, several classes at once: no tokens.
        ({"input_ids": IDS, "attention_mask": torch.ones(2, 1, 3, 3)}, 6, 6),
        ({"pixel_values": torch.zeros(2, 3, 4, 4), "labels": torch.ones(2, 4, 4).long()}, 0, 0),
        ({"x": torch.zeros(2, 5), "labels": torch.zeros(2, 5)}, 0, 0),
        ({"input_ids": [[1, 2]]}, 0, 0),
        ((IDS, LABELS), 0, 0),
        (IDS, 0, 0),
    ],
)
def test_tokens_by_the_names_in_a_batch(batch: Any, in_loss: int, in_batch: int) -> None:
    assert loss_tokens(batch) == in_loss
    assert batch_tokens(batch) == in_batch
