"""Workloads with one mistake each, and the cause that `check` must name."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from bsprof import Workload

WIDTH, CLASSES = 12, 5


def images(samples, device):
    return (
        torch.randn(samples, WIDTH, device=device),
        torch.randint(CLASSES, (samples,), device=device),
    )


def layers(*between):
    return nn.Sequential(
        nn.Linear(WIDTH, 16), *[make() for make in between], nn.Tanh(), nn.Linear(16, CLASSES)
    )


def mean_loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def job(model, *, batch=images, loss=mean_loss, **more):
    return Workload(model=model, batch=batch, loss=loss, **more)


def clean():
    return job(layers)


def batch_norm():
    return job(lambda: layers(lambda: nn.BatchNorm1d(16)))


def batch_norm_functional():
    class Norm(nn.Module):
        def forward(self, x):
            return F.batch_norm(x, None, None, training=True)

    return job(lambda: layers(Norm))


def batch_norm_by_hand():
    class Whitened(nn.Module):
        def forward(self, x):
            return (x - x.mean(0)) / (x.std(0, correction=0) + 0.1)

    return job(lambda: layers(Whitened))


def dropout():
    return job(lambda: layers(lambda: nn.Dropout(0.3)))


def dropout_functional():
    class Drop(nn.Module):
        def forward(self, x):
            return F.dropout(x, 0.3, self.training)

    return job(lambda: layers(Drop))


def noise():
    class Noisy(nn.Module):
        def forward(self, x):
            return x + 0.1 * torch.randn_like(x)

    return job(lambda: layers(Noisy))


def text(samples, device):
    ids = torch.randint(11, (samples, 8), device=device)
    labels = ids.roll(1, 1).clone()
    kept = torch.randint(1, 9, (samples, 1), device=device)
    labels[torch.arange(8, device=device) >= kept] = -100
    return {"input_ids": ids, "labels": labels}


def tagger(**options):
    return nn.Sequential(nn.Embedding(11, 8, **options), nn.Tanh(), nn.Linear(8, 11))


def token_loss(model, batch):
    logits = model(batch["input_ids"])
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100)


def token_mean():
    return job(tagger, batch=text, loss=token_loss)


def token_mean_counted():
    count = lambda batch: int((batch["labels"] != -100).sum())  # noqa: E731
    return job(tagger, batch=text, loss=token_loss, count=count)


def sum_loss():
    def loss(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1], reduction="sum")

    return job(layers, loss=loss)


def fixed_divisor():
    def loss(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1], reduction="sum") / 32

    return job(layers, loss=loss)


def in_batch_negatives():
    def loss(model, batch):
        z = F.normalize(model(batch[0]), dim=1)
        other = F.normalize(model(batch[0] + 0.1), dim=1)
        return F.cross_entropy(z @ other.T / 0.5, torch.arange(len(z), device=z.device))

    return job(layers, loss=loss)


def counter_in_model():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * (1 + 0.1 * self.calls)

    return job(lambda: layers(Counting))


def queue_in_buffer():
    class Queue(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(16))

        def forward(self, x):
            y = x - self.mean
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            return y

    return job(lambda: layers(Queue))


def counter_in_loss():
    steps = itertools.count(1)

    def loss(model, batch):
        return mean_loss(model, batch) / next(steps)

    return job(layers, loss=loss)


def sparse():
    return job(lambda: tagger(sparse=True), batch=text, loss=full_loss)


def frequency():
    return job(lambda: tagger(scale_grad_by_freq=True), batch=text, loss=full_loss)


def full_loss(model, batch):
    logits = model(batch["input_ids"])
    return F.cross_entropy(logits.flatten(0, 1), batch["input_ids"].flatten())


def dropout_and_batch_norm_and_tokens():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(11, 8)
            self.drop = nn.Dropout(0.2)
            self.norm = nn.BatchNorm1d(8)
            self.head = nn.Linear(8, 11)

        def forward(self, ids):
            x = self.drop(self.embedding(ids))
            return self.head(self.norm(x.transpose(1, 2)).transpose(1, 2))

    return job(Model, batch=text, loss=token_loss)


def float_only():
    class Single(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(16))

        def forward(self, x):
            return (x.float() @ torch.eye(16) * self.scale).to(torch.float32)

    return job(lambda: layers(Single))


def broken():
    def loss(model, batch):  # noqa: ARG001
        raise ValueError("no such thing as a loss")

    return job(layers, loss=loss)


def packed():
    def batch(samples, device):
        x, y = images(samples, device)
        return x, y, torch.arange(3 * samples + 1, device=device)

    return job(layers, batch=batch)


PLANTED = {
    "batch_norm": "batch-norm",
    "batch_norm_functional": "batch-norm",
    "batch_norm_by_hand": "in-batch",
    "dropout": "dropout",
    "dropout_functional": "dropout",
    "noise": "dropout",
    "token_mean": "token-mean",
    "sum_loss": "sum-loss",
    "fixed_divisor": "sum-loss",
    "in_batch_negatives": "in-batch",
    "counter_in_model": "state",
    "queue_in_buffer": "state",
    "counter_in_loss": "state",
    "frequency": "embedding-frequency",
}
