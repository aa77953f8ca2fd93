"""Each adapter in a user's file, swept by the real program with real workers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from bsprof import Workload

rows = TensorDataset(torch.randn(40, 8), torch.randint(3, (40,)))

def loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])
"""
BATCHES = """
def make():
    texts = [{"input_ids": torch.randint(9, (n,)), "labels": torch.randint(9, (n,))}
             for n in range(3, 33)]

    def pad(samples):
        return {key: nn.utils.rnn.pad_sequence([s[key] for s in samples], batch_first=True,
                                               padding_value=0 if key == "input_ids" else -100)
                for key in ("input_ids", "labels")}

    def model():
        return nn.Sequential(nn.Embedding(9, 16), nn.Linear(16, 9))

    def loss(model, batch):
        logits = model(batch["input_ids"])
        return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())

    return Workload.from_batches(model, DataLoader(texts, 4, collate_fn=pad), loss=loss)
"""
STEP = """
def step(model, batch):
    loss(model, batch).backward()

def make():
    return Workload.from_step(
        step,
        model=lambda: nn.Linear(8, 3),
        batch=lambda b, device: [part.to(device) for part in rows[:b]],
        loss=loss,
    )
"""
LIGHTNING = """
import lightning

class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 3)

    def training_step(self, batch, batch_idx):
        value = loss(self.net, batch)
        self.log("loss", value)
        return {"loss": value}

    def validation_step(self, batch, batch_idx):
        return loss(self.net, batch)

    def configure_optimizers(self):
        return [torch.optim.AdamW(self.parameters())], []

def make():
    return Workload.from_lightning(Classifier, DataLoader(rows, batch_size=4))
"""
TRAINER = """
import transformers

def pad(samples):
    ids = torch.tensor([sample["input_ids"] for sample in samples])
    return {"input_ids": ids, "labels": ids}

def make():
    config = transformers.GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=50, n_positions=16,
                                     bos_token_id=1, eos_token_id=1)
    return Workload.from_trainer(transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config),
        args=transformers.TrainingArguments(output_dir="out", use_cpu=True, report_to=[]),
        train_dataset=[{"input_ids": [n % 50] * 12} for n in range(40)],
        data_collator=pad,
    ))
"""


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize(
    ("script", "samples", "tokens"),
    [
        pytest.param(BATCHES, 30, round(sum(range(3, 33)) / 30), id="batches"),
        pytest.param(STEP, None, None, id="step"),
        pytest.param(LIGHTNING, 40, None, id="lightning", marks=needs("lightning")),
        pytest.param(TRAINER, 40, 12, id="trainer", marks=needs("transformers")),
    ],
)
def test_a_sweep_measures_both_sizes(
    tmp_path: Path,
    program: Callable[..., Any],
    script: str,
    samples: int | None,
    tokens: int | None,
    mode: str,
) -> None:
    (tmp_path / "theirs.py").write_text(HEAD + script)
    profile = program(tmp_path, "theirs.py:make", "--mode", mode)
    assert [point["status"] for point in profile["points"]] == ["ok", "ok"]
    assert [point["observed_micro_batch_size"] for point in profile["points"]] == [1, 2]
    assert profile["facts"]["dataset_size"] == samples
    assert profile["facts"]["tokens_per_sample"] == tokens
    assert profile["facts"]["optimizer"] == ("AdamW" if mode == "train" else None)
    assert all(point["flops"] for point in profile["points"])
