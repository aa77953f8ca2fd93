"""Neural collaborative filtering (NeuMF): does this user take to this item?

He et al. 2017, arXiv 1708.05031: a product of one pair of embeddings beside a network over another
pair, joined by a linear layer. A sample is one (user, item) pair. Gradients of the embeddings are
dense.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.catalogue.entries import Entry
from bsprof.workloads.families.settings import read_settings
from bsprof.workloads.workload import Workload

EMBEDDING_STD = 0.01  # of the authors' program

Batch = tuple[Tensor, Tensor, Tensor]
"""Users (b,), items (b,) and whether they met (b,), 0.0 or 1.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NCFSettings:
    """What defines a NeuMF model.

    Attributes:
        users: Rows of the users' tables.
        items: Rows of the items' tables.
        factors: Features of the embeddings that are multiplied.
        widths: Features at the input of the network (a user's and an item's half each) and after
            each of its layers; the first is even.
    """

    users: int
    items: int
    factors: int
    widths: tuple[int, ...]


class NeuMF(nn.Module):
    """Users (b,) and items (b,) to logits (b,)."""

    def __init__(self, settings: NCFSettings) -> None:
        super().__init__()
        widths = settings.widths
        self.factor_users = nn.Embedding(settings.users, settings.factors)
        self.factor_items = nn.Embedding(settings.items, settings.factors)
        self.network_users = nn.Embedding(settings.users, widths[0] // 2)
        self.network_items = nn.Embedding(settings.items, widths[0] // 2)
        self.network = nn.Sequential(
            *(
                nn.Sequential(nn.Linear(features_in, features_out), nn.ReLU())
                for features_in, features_out in itertools.pairwise(widths)
            )
        )
        self.head = nn.Linear(settings.factors + widths[-1], 1)
        self.apply(init_weights)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Logits that the user takes to the item."""
        product = self.factor_users(users) * self.factor_items(items)
        pair = torch.cat([self.network_users(users), self.network_items(items)], dim=-1)
        logits: Tensor = self.head(torch.cat([product, self.network(pair)], dim=-1))
        return logits.squeeze(-1)


def init_weights(module: nn.Module) -> None:
    """Small normal embeddings, linear layers after Glorot and Bengio 2010."""
    if isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=EMBEDDING_STD)
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)


def pair_batches(settings: NCFSettings, seed: int) -> Callable[[int, torch.device], Batch]:
    """A batch function: random users and items, and whether they met."""
    generator = torch.Generator().manual_seed(seed)

    def batch(micro_batch_size: int, device: torch.device) -> Batch:
        shape = (micro_batch_size,)
        users = torch.randint(settings.users, shape, generator=generator)
        items = torch.randint(settings.items, shape, generator=generator)
        labels = torch.randint(2, shape, generator=generator).float()
        return users.to(device), items.to(device), labels.to(device)

    return batch


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean binary cross entropy."""
    users, items, labels = batch
    return F.binary_cross_entropy_with_logits(model(users, items), labels)


def workload(spec: WorkloadSpec, entry: Entry) -> Workload:
    """The workload of a NeuMF entry.

    Raises:
        UsageError: settings that no model can be built with.
    """
    settings = read_settings(NCFSettings, spec, entry)
    if settings.widths[0] % 2 or len(settings.widths) < 2:
        raise UsageError(
            f"{entry.name} needs an even first width and at least one layer",
            found=f"widths={','.join(map(str, settings.widths))}",
            next_step="give the input's and each layer's width, like 256,128",
        )
    return Workload(
        model=lambda: NeuMF(settings),
        batch=pair_batches(settings, spec.seed),
        loss=loss,
        checkpoint_blocks=lambda model: list(cast(NeuMF, model).network),
    )
